package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// copyTree copies a folder with owners, modes, times, extended attributes, hard
// links, holes, and files of every kind.
func copyTree(from, to string) error {
	return copying{}.entry(from, to)
}

// copying remembers the copy of each file that has several names, by its inode.
type copying map[uint64]string

func (c copying) entry(from, to string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(from, &stat); err != nil {
		return fmt.Errorf("look at %s: %w", from, err)
	}
	kind := stat.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && stat.Nlink > 1 {
		if first, seen := c[stat.Ino]; seen {
			return os.Link(first, to)
		}
		c[stat.Ino] = to
	}
	var err error
	switch kind {
	case unix.S_IFDIR:
		err = c.folder(from, to)
	case unix.S_IFREG:
		err = copyFile(from, to, stat.Size)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	default:
		err = unix.Mknod(to, stat.Mode, int(stat.Rdev))
	}
	if err == nil {
		err = copyAttributes(from, to, &stat)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

func (c copying) folder(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, entry := range entries {
		if err := c.entry(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies what is between the holes.
func copyFile(from, to string, size int64) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer target.Close()
	if err := target.Truncate(size); err != nil {
		return err
	}
	for end := int64(0); end < size; {
		start, err := source.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return err
		}
		if end, err = source.Seek(start, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := source.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := target.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(target, source, end-start); err != nil {
			return err
		}
	}
	return target.Close()
}

// copyAttributes comes after the contents, which change times. A change of owner
// removes setuid bits and capabilities, so these follow it.
func copyAttributes(from, to string, stat *unix.Stat_t) error {
	if err := unix.Lchown(to, int(stat.Uid), int(stat.Gid)); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(to, stat.Mode&0o7777); err != nil {
			return err
		}
	}
	if err := copyExtended(from, to); err != nil {
		return err
	}
	times := []unix.Timespec{stat.Atim, stat.Mtim}
	return unix.UtimesNanoAt(unix.AT_FDCWD, to, times, unix.AT_SYMLINK_NOFOLLOW)
}

func copyExtended(from, to string) error {
	names := make([]byte, 64<<10)
	length, err := unix.Llistxattr(from, names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	value := make([]byte, 64<<10)
	for _, name := range strings.FieldsFunc(string(names[:length]), func(r rune) bool { return r == 0 }) {
		size, err := unix.Lgetxattr(from, name, value)
		if err != nil {
			return err
		}
		if err := unix.Lsetxattr(to, name, value[:size], 0); err != nil {
			return err
		}
	}
	return nil
}
