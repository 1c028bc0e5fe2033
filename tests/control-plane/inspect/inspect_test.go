package inspect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// member is one archive member a test writes.
type member struct {
	name, content string
	kind          byte
}

func file(name, content string) member {
	return member{name: name, content: content, kind: tar.TypeReg}
}

func packTar(t *testing.T, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for _, m := range members {
		header := &tar.Header{Name: m.name, Typeflag: m.kind, Mode: 0o644, Size: int64(len(m.content))}
		if m.kind == tar.TypeSymlink {
			header.Linkname = "target"
		}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(m.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zip(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := writer.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPrintsOneLineForEachEntry(t *testing.T) {
	long := "resources/" + strings.Repeat("long/", 60) + "a.json"
	data := zip(t, packTar(t, file("metadata/version", "1.1.0"), file(long, `{"kind":"A"}`), file("empty", "")))
	path := filepath.Join(t.TempDir(), "backup.tar.gz")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := File(path, false, &out); err != nil {
		t.Fatal(err)
	}
	want := line("metadata/version", "1.1.0") + line(long, `{"kind":"A"}`) + line("empty", "")
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func line(name, content string) string {
	sum := sha256.Sum256([]byte(content))
	return fmt.Sprintf(`{"name":%q,"mode":"0644","type":"file","size":%d,"sha256":%q}`+"\n",
		name, len(content), hex.EncodeToString(sum[:]))
}

func TestAcceptsAnEmptyArchive(t *testing.T) {
	var out bytes.Buffer
	if err := Read(bytes.NewReader(zip(t, packTar(t))), false, &out); err != nil || out.Len() > 0 {
		t.Errorf("got %v and %q", err, out.String())
	}
}

func TestRefuses(t *testing.T) {
	one := packTar(t, file("resources/a.json", "{}"))
	zipped := zip(t, one)
	damaged := bytes.Clone(zipped)
	damaged[len(damaged)-5] ^= 1
	zeros := packTar(t, file("zeros", strings.Repeat("\x00", 4096)))
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"no gzip":              {one, "not a gzip stream"},
		"empty file":           {nil, "cut short"},
		"no tar":               {zip(t, bytes.Repeat([]byte("x"), 2048)), "invalid tar header"},
		"nothing inside":       {zip(t, nil), "cut short"},
		"gzip cut short":       {zipped[:len(zipped)-9], "cut short"},
		"gzip without its sum": {zipped[:len(zipped)-8], "cut short"},
		"wrong sum":            {damaged, "checksum"},
		"more after the gzip":  {append(bytes.Clone(zipped), "more"...), "after the last entry"},
		"content cut short":    {zip(t, one[:512+1]), "cut short"},
		"no trailer":           {zip(t, one[:1024]), "cut short"},
		"half a trailer":       {zip(t, one[:1024+512]), "cut short"},
		"no trailer, zeros":    {zip(t, zeros[:512+4096]), "cut short"},
		"more after the end":   {zip(t, append(bytes.Clone(one), one...)), "follows the end"},
		"folder":               {zip(t, packTar(t, member{name: "resources/", kind: tar.TypeDir})), "not a regular file"},
		"symbolic link":        {zip(t, packTar(t, member{name: "a", kind: tar.TypeSymlink})), "not a regular file"},
		"absolute name":        {zip(t, packTar(t, file("/a", ""))), "clean relative name"},
		"name that leaves":     {zip(t, packTar(t, file("../a", ""))), "clean relative name"},
		"unclean name":         {zip(t, packTar(t, file("a/./b", ""))), "clean relative name"},
		"twice":                {zip(t, packTar(t, file("a", ""), file("a", ""))), "present twice"},
		"no JSON":              {zip(t, packTar(t, file("resources/a.json", "{"))), "not JSON"},
		"empty JSON":           {zip(t, packTar(t, file("resources/a.json", ""))), "not JSON"},
		"two JSON values":      {zip(t, packTar(t, file("resources/a.json", "{} {}"))), "not JSON"},
		"JSON and rubbish":     {zip(t, packTar(t, file("resources/a.json", "{} }"))), "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Read(bytes.NewReader(test.data), false, &bytes.Buffer{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestNewerVersions(t *testing.T) {
	newer := func(name string) []byte {
		return zip(t, packTar(t, file(name, "{}"), file("other", ""), file(name, "{}")))
	}
	var out bytes.Buffer
	if err := Read(bytes.NewReader(newer("resources/a.json")), true, &out); err != nil || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("got %v, %s", err, out.String())
	}
	if err := Read(bytes.NewReader(newer("metadata/version")), true, &out); err == nil {
		t.Error("only resources have newer versions")
	}
}
