package pending

// SetYield has f called at the decision points.
func (t *Table) SetYield(f func()) { t.yield = f }

// SetGap splits the check of every claim from the claim itself: f is called in
// between, without the lock. It is the mistake that the model check must find.
func (t *Table) SetGap(f func()) { t.gap = f }
