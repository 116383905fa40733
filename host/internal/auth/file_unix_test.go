//go:build unix

package auth_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muxhost/muxhost/host/internal/auth"
)

// A minted token has 256 bits, differs every time and is acceptable.
func TestMintedTokensAreStrong(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s := auth.NewSecret()
		if len(s) != 43 || seen[s] || auth.CheckSecret(s) != nil {
			t.Fatalf("NewSecret = %q (seen %v, check %v); want 43 fresh characters", s, seen[s], auth.CheckSecret(s))
		}
		seen[s] = true
	}
}

// Secrets that are short, repeat themselves or cannot travel are refused, and the
// refusal does not quote them.
func TestWeakTokensAreRefusedUnquoted(t *testing.T) {
	for _, s := range []string{"", "x", "hunter2-hunter2", strings.Repeat("a", 64), strings.Repeat("pass word", 8), strings.Repeat("aB3$", 20), strings.Repeat("abcdefgh", 100)} {
		err := auth.CheckSecret(s)
		if !errors.Is(err, auth.ErrWeakSecret) {
			t.Errorf("CheckSecret(%.20q) = %v, want ErrWeakSecret", s, err)
			continue
		}
		if len(s) > 8 && strings.Contains(err.Error(), s) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
	if _, err := auth.NewTable(nil); err == nil {
		t.Error("a table without tokens was accepted")
	}
	s := auth.NewSecret()
	if _, err := auth.NewTable([]auth.Token{{Secret: s}, {Secret: s}}); err == nil {
		t.Error("the same secret twice was accepted")
	}
}

// Under umask 0 as under umask 0777, what is written is 0600 in a 0700 directory.
func TestTokenFileIsPrivateUnderAnyUmask(t *testing.T) {
	for _, mask := range []int{0, 0o777} {
		dir := filepath.Join(t.TempDir(), "state")
		old := syscall.Umask(mask)
		err := auth.PrepareDir(dir)
		var secret string
		if err == nil {
			secret, err = auth.CreateToken(dir)
		}
		syscall.Umask(old)
		if err != nil {
			t.Fatalf("umask %04o: %v", mask, err)
		}
		for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, auth.TokenFile): 0o600} {
			if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("umask %04o: %s has mode %v (%v), want %v", mask, path, info.Mode(), err, want)
			}
		}
		if got, err := auth.LoadToken(dir); err != nil || got != secret {
			t.Errorf("umask %04o: LoadToken = %v, same %v", mask, err, got == secret)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
			t.Errorf("temporary files were left: %v", left)
		}
		if _, err := auth.CreateToken(dir); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a second CreateToken = %v, want ErrExist", err)
		}
	}
}

// Whatever is open to others, planted, or too short is refused with the fix.
func TestLooseTokenFilesAreRefusedWithTheFix(t *testing.T) {
	cases := map[string]struct {
		spoil func(t *testing.T, dir, file string)
		want  string
	}{
		"file 0644":     {func(t *testing.T, _, f string) { must(t, os.Chmod(f, 0o644)) }, "chmod 0600"},
		"file 0640":     {func(t *testing.T, _, f string) { must(t, os.Chmod(f, 0o640)) }, "chmod 0600"},
		"directory 755": {func(t *testing.T, d, _ string) { must(t, os.Chmod(d, 0o755)) }, "chmod 0700"},
		"directory 1777": {func(t *testing.T, d, _ string) {
			must(t, os.Chmod(d, 0o777|fs.ModeSticky))
		}, "chmod 0700"},
		"link": {func(t *testing.T, d, f string) {
			must(t, os.Rename(f, filepath.Join(d, "other")))
			must(t, os.Symlink(filepath.Join(d, "other"), f))
		}, "symbolic link"},
		"directory instead": {func(t *testing.T, _, f string) {
			must(t, os.Remove(f))
			must(t, os.Mkdir(f, 0o700))
		}, "not a file"},
		"short":  {func(t *testing.T, _, f string) { must(t, os.WriteFile(f, []byte("secret\n"), 0o600)) }, "32"},
		"empty":  {func(t *testing.T, _, f string) { must(t, os.WriteFile(f, nil, 0o600)) }, "32"},
		"larger": {func(t *testing.T, _, f string) { must(t, os.WriteFile(f, make([]byte, 5000), 0o600)) }, "4096"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "it's")
			must(t, auth.PrepareDir(dir))
			secret, err := auth.CreateToken(dir)
			must(t, err)
			c.spoil(t, dir, filepath.Join(dir, auth.TokenFile))
			_, err = auth.LoadToken(dir)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("LoadToken = %v; want an error with %q and without the secret", err, c.want)
			}
		})
	}
}

// A link planted where a secret will be written is replaced, not written through;
// a linked or relative state directory is refused.
func TestPlantedLinksAreNotFollowed(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "state")
	must(t, auth.PrepareDir(dir))
	victim := filepath.Join(base, "victim")
	must(t, os.WriteFile(victim, []byte("old"), 0o600))
	must(t, os.Symlink(victim, filepath.Join(dir, "host.json")))
	must(t, auth.WriteFile(dir, "host.json", []byte("new")))
	if b, _ := os.ReadFile(victim); string(b) != "old" {
		t.Errorf("the link's target now holds %q", b)
	}
	if b, err := auth.ReadFile(dir, "host.json"); err != nil || string(b) != "new" {
		t.Errorf("ReadFile = %q, %v", b, err)
	}
	link := filepath.Join(base, "link")
	must(t, os.Symlink(dir, link))
	for _, d := range []string{link, victim, "state"} {
		if err := auth.PrepareDir(d); err == nil {
			t.Errorf("PrepareDir(%q) was accepted", d)
		}
	}
}

// A file of another user is refused even when its mode is right.
func TestForeignOwnerIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can give files away; the owner check is covered by the directory below")
		if err := auth.CheckDir("/root"); err == nil {
			t.Error("CheckDir(/root) was accepted for another user")
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	must(t, auth.PrepareDir(dir))
	_, err := auth.CreateToken(dir)
	must(t, err)
	must(t, os.Chown(filepath.Join(dir, auth.TokenFile), 65534, 65534))
	if _, err := auth.LoadToken(dir); err == nil || !strings.Contains(err.Error(), "chown") {
		t.Errorf("LoadToken of a foreign file = %v, want a refusal with chown", err)
	}
	must(t, os.Chown(dir, 65534, 65534))
	if err := auth.PrepareDir(dir); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("PrepareDir of a foreign directory = %v", err)
	}
}
