package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// maxFile bounds config.toml.
const maxFile = 1 << 20

// Config is what config.toml says. The zero value is that of a file that does not
// exist.
type Config struct {
	// Path is the file, "" if there was none.
	Path string
	// Settings are those of the host, in the order of the file.
	Settings []Setting
	// Agents are those of the file, in its order.
	Agents []*Agent
	// Warnings are worth a look, and stop nothing.
	Warnings []string
}

// Setting is a setting of the host: a flag of `muxhost serve`, by name.
type Setting struct {
	Key string
	// Values are what the flag takes; a flag that may be repeated may have several,
	// or none.
	Values []string
	// At is file:line.
	At string
}

// Agent returns the agent of that name, nil if the file has none.
func (c *Config) Agent(name string) *Agent {
	i := slices.IndexFunc(c.Agents, func(a *Agent) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return c.Agents[i]
}

// Path returns where config.toml is looked for: $MUXHOST_CONFIG, else
// $XDG_CONFIG_HOME/muxhost/config.toml, else ~/.config/muxhost/config.toml, on
// Windows %AppData%\muxhost\config.toml. It is "" where $HOME is not set either.
func Path(getenv func(string) string) string {
	if p := getenv("MUXHOST_CONFIG"); p != "" {
		return p
	}
	dir := getenv("XDG_CONFIG_HOME")
	if runtime.GOOS == "windows" && !filepath.IsAbs(dir) {
		dir = getenv("AppData")
	}
	if !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "muxhost", "config.toml")
}

// Open reads the file that flag names, else the one of [Path]. A file that nobody
// named, by flag or by $MUXHOST_CONFIG, need not exist.
func Open(flag string, getenv func(string) string) (*Config, error) {
	path := flag
	if path == "" {
		path = Path(getenv)
	}
	if path == "" {
		return &Config{}, nil
	}
	c, err := Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		switch {
		case flag != "":
			return nil, fmt.Errorf("%w, or leave out --config", err)
		case getenv("MUXHOST_CONFIG") != "":
			return nil, fmt.Errorf("%w, or unset $MUXHOST_CONFIG, which names it", err)
		}
		return &Config{}, nil
	}
	return c, err
}

// Load reads path. Its error joins an [Error] for each fault of the file, or is that
// of reading it; it wraps [fs.ErrNotExist] if there is no such file.
func Load(path string) (*Config, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration file: %w", err)
	}
	b, info, err := readFile(path, maxFile)
	if err != nil {
		if _, ok := errors.AsType[*Error](err); ok {
			return nil, err
		}
		if e, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the configuration file %s: %w; write one with muxhost config example > %s", path, e.Err, path)
		}
		return nil, fmt.Errorf("the configuration file: %w", err)
	}
	doc, err := parse(path, b)
	if err != nil {
		return nil, err
	}
	c := &Config{Path: path}
	c.read(doc)
	if err := doc.err(); err != nil {
		return nil, err
	}
	c.Warnings = append(c.Warnings, modeWarnings(path, info, c)...)
	return c, nil
}

// modeWarnings tells of others who could change the file, or read its secrets.
func modeWarnings(path string, info fs.FileInfo, c *Config) (out []string) {
	if runtime.GOOS == "windows" {
		return nil // its modes say nothing
	}
	if info.Mode().Perm()&0o022 != 0 {
		out = append(out, fmt.Sprintf("%s can be changed by others, who could have programs run as you: chmod go-w it", path))
	}
	if info.Mode().Perm()&0o044 == 0 {
		return out
	}
	for _, a := range c.Agents {
		if i := slices.IndexFunc(a.Program.Env, func(kv string) bool { return secret.MatchString(kv) }); i >= 0 {
			name := secret.FindStringSubmatch(a.Program.Env[i])[1]
			return append(out, fmt.Sprintf("%s can be read by others and seems to hold a secret (%s of agent %s): chmod 0600 it, or name the variable in pass-env instead", path, name, a.Name))
		}
	}
	return out
}

var secret = regexp.MustCompile(`^([A-Za-z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD))=.`)

// topKeys are the keys of the file that are no settings.
func (c *Config) topKeys(doc *document) []key {
	return []key{{name: "agents", take: func(v any) error {
		m, ok := v.(map[string]any)
		if !ok {
			return wants("tables, such as [agents.claude]")
		}
		c.agents(table{doc, []string{"agents"}, m})
		return nil
	}}}
}

func (c *Config) read(doc *document) {
	top := doc.top()
	keys := append(c.hostKeys(top), c.topKeys(doc)...)
	top.bind(keys, func(name string) string {
		if slices.Contains(agentKeyNames(), name) {
			return fmt.Sprintf("%q belongs to an agent: put it below a line such as [agents.claude]", name)
		}
		return ""
	})
}

var (
	anyText  = regexp.MustCompile(`^[^\x00-\x1f\x7f]+$`)
	sizeText = regexp.MustCompile(`^[0-9]{1,18}(B|KiB|MiB|GiB|TiB)?$`)
)

// hostKeys are the settings of the host, named as the flags of `muxhost serve`.
func (c *Config) hostKeys(top table) []key {
	add := func(name string, values ...string) error {
		c.Settings = append(c.Settings, Setting{name, values, top.where(name)})
		return nil
	}
	var keys []key
	for _, name := range []string{"listen", "name", "agent", "tls-cert", "tls-key"} {
		keys = append(keys, key{name, func(v any) error { return adding(v, text, name, add) }})
	}
	for _, name := range []string{"allow-host", "allow-origin"} {
		keys = append(keys, key{name, func(v any) error {
			var list []string
			if err := texts(&list, "names in quotes", anyText)(v); err != nil {
				return err
			}
			return add(name, list...)
		}})
	}
	keys = append(keys,
		key{"ask-timeout", durationSetting("ask-timeout", time.Second, 7*24*time.Hour, add)},
		key{"keep-age", durationSetting("keep-age", time.Minute, 100*365*24*time.Hour, add)},
		key{"keep-events", countSetting("keep-events", 0, math.MaxInt64, add)},
		key{"keep-bytes", sizeSetting("keep-bytes", add)},
		key{"keep-total", sizeSetting("keep-total", add)},
	)
	for _, name := range []string{"max-queue", "max-tree", "max-depth", "spawn-rate"} {
		keys = append(keys, key{name, countSetting(name, 1, 1_000_000, add)})
	}
	words := func(name string, words ...string) key {
		return key{name, func(v any) error {
			return adding(v, func(to *string) func(any) error { return oneOf(to, words...) }, name, add)
		}}
	}
	return append(keys, words("log-level", "debug", "info", "warn", "error"), words("log-format", "text", "json"))
}

// adding takes a string and adds it as the setting name.
func adding(v any, take func(*string) func(any) error, name string, add func(string, ...string) error) error {
	var s string
	if err := take(&s)(v); err != nil {
		return err
	}
	return add(name, s)
}

func durationSetting(name string, least, most time.Duration, add func(string, ...string) error) func(any) error {
	return func(v any) error {
		var d time.Duration
		if err := duration(&d, least, most)(v); err != nil {
			return err
		}
		return add(name, d.String())
	}
}

func countSetting(name string, least, most int64, add func(string, ...string) error) func(any) error {
	return func(v any) error {
		var n int64
		if err := count(&n, least, most)(v); err != nil {
			return err
		}
		return add(name, strconv.FormatInt(n, 10))
	}
}

func sizeSetting(name string, add func(string, ...string) error) func(any) error {
	return func(v any) error {
		s, _ := v.(string)
		if n, ok := v.(int64); ok {
			s = strconv.FormatInt(n, 10)
		}
		if !sizeText.MatchString(s) {
			return wants(`a number of bytes, or one with KiB, MiB, GiB or TiB in quotes, such as "64MiB"`)
		}
		return add(name, s)
	}
}
