// Package inspect is an independent reader of backup archives. It shares no
// code with the product, so a test that passes through it says that the
// archive is a plain .tar.gz any tool can read, and not merely that the
// product understands its own output.
//
// It is stricter than the standard library where the library is lenient: an
// archive must end with the two zero blocks that the format asks for, so one
// that was cut at an entry's border and compressed anew does not pass.
package inspect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

const (
	block = 512
	// trailer is the least number of zero bytes after the last entry.
	trailer = 2 * block
)

// entry is the line printed for one archive member.
type entry struct {
	Name   string `json:"name"`
	Mode   string `json:"mode"`
	Type   string `json:"type"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// File reads the archive at name and prints one JSON line for each entry. The
// lines of a broken archive's sound entries are printed before the error is
// returned, which shows where it breaks.
//
// No path may be there twice, unless replaced says that entries under
// resources/ may be followed by newer versions of themselves.
func File(name string, replaced bool, out io.Writer) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return Read(file, replaced, out)
}

// Read is File for an archive that is already open.
func Read(in io.Reader, replaced bool, out io.Writer) error {
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("not a gzip stream: %w", cutShort(err))
	}
	raw := &counter{in: unzipped}
	archive := tar.NewReader(raw)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	seen := map[string]bool{}
	var end int64
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("after %d entries: %w", len(seen), cutShort(err))
		}
		line, err := readEntry(header, archive)
		if err != nil {
			return fmt.Errorf("entry %q: %w", header.Name, cutShort(err))
		}
		if seen[line.Name] && !(replaced && strings.HasPrefix(line.Name, "resources/")) {
			return fmt.Errorf("entry %q: present twice", line.Name)
		}
		seen[line.Name] = true
		if err := lines.Encode(line); err != nil {
			return err
		}
		end = (raw.read + block - 1) / block * block
	}
	return checkTrailer(raw, end)
}

func readEntry(header *tar.Header, content io.Reader) (entry, error) {
	if header.Typeflag != tar.TypeReg {
		return entry{}, fmt.Errorf("type %q is not a regular file", header.Typeflag)
	}
	if err := checkName(header.Name); err != nil {
		return entry{}, err
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return entry{}, err
	}
	if strings.HasPrefix(header.Name, "resources/") {
		if err := checkJSON(data); err != nil {
			return entry{}, err
		}
	}
	sum := sha256.Sum256(data)
	return entry{
		Name:   header.Name,
		Mode:   fmt.Sprintf("%04o", header.Mode),
		Type:   "file",
		Size:   int64(len(data)),
		SHA256: hex.EncodeToString(sum[:]),
	}, nil
}

// checkName refuses names that would leave the folder the archive is unpacked
// in, and those that name one file in two ways.
func checkName(name string) error {
	if name == "." || name != path.Clean(name) || path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
		return errors.New("not a clean relative name")
	}
	return nil
}

// checkJSON wants exactly one JSON value.
func checkJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var value any
	if err := decoder.Decode(&value); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("not JSON: something follows the value")
	}
	return nil
}

// checkTrailer reads what is left, which also makes gzip verify its checksum,
// and wants nothing but zero blocks from the last entry's end on.
func checkTrailer(raw *counter, end int64) error {
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return fmt.Errorf("after the last entry: %w", cutShort(err))
	}
	if raw.read-end < trailer || raw.read%block != 0 {
		return errors.New("cut short: the archive has no end-of-archive blocks")
	}
	if raw.zeros < raw.read-end {
		return errors.New("something follows the end-of-archive blocks")
	}
	return nil
}

// cutShort says in plain words what an unexpected end of input means.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("cut short: %w", err)
	}
	return err
}

// counter counts the bytes read through it, and how many of the last ones are
// zero.
type counter struct {
	in          io.Reader
	read, zeros int64
}

func (c *counter) Read(buffer []byte) (int, error) {
	n, err := c.in.Read(buffer)
	tail := int64(n - len(bytes.TrimRight(buffer[:n], "\x00")))
	if tail == int64(n) {
		c.zeros += tail
	} else {
		c.zeros = tail
	}
	c.read += int64(n)
	return n, err
}
