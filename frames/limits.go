package frames

// Sizes fixed by the contract, in bytes unless said otherwise.
const (
	// MaxFrame is the largest frame the host sends.
	MaxFrame = 256 << 10
	// MaxEvent is the largest encoded event; larger parts become a preview.
	MaxEvent = 240 << 10
	// MaxOpenText is how much open text a turn may hold before the host writes
	// it as a partial message.
	MaxOpenText = 128 << 10
	// MaxProgress is how much of a tool's progress is kept.
	MaxProgress = 64 << 10
	// MaxMessage is the largest message a client may send.
	MaxMessage = 1 << 20
	// MaxDepth is the deepest JSON nesting accepted.
	MaxDepth = 64
	// MaxInteger bounds every integer on the wire (exclusive).
	MaxInteger = 1 << 53
)

// ProtocolVersion is the version of the wire contract.
const ProtocolVersion = "1.0"
