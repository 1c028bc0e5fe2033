package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	volumes   = "volumes"
	snapshots = "snapshots"
	// Folder of what is not complete yet.
	partial = "partial"
)

// storage keeps each volume and snapshot in a folder of its own, with the
// contents in data (a folder; of a block volume, a file) and the rest in
// about.json. A call that is repeated finds what the first one has made.
type storage struct {
	root string
	// Calls are rare here: one after another is fast enough.
	mutex sync.Mutex
}

// about is what is known of a volume or snapshot beside its contents.
type about struct {
	Size    int64
	Created time.Time
	// Whether it is a block device, and no folder.
	Block bool
	// Volume that a snapshot is of.
	Source string
}

func (s *storage) prepare() error {
	if s.root == "" {
		return errors.New("--root is missing")
	}
	for _, kind := range []string{volumes, snapshots} {
		if err := os.MkdirAll(filepath.Join(s.root, kind), 0o750); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(s.root, partial))
}

// data is where the contents of a volume or snapshot are.
func (s *storage) data(kind, id string) string {
	return filepath.Join(s.root, kind, id, "data")
}

// find says what is known of a volume or snapshot.
func (s *storage) find(kind, id string) (*about, error) {
	if id == "" || id != filepath.Base(id) || strings.HasPrefix(id, ".") {
		return nil, status.Errorf(codes.InvalidArgument, "%q is no id", id)
	}
	text, err := os.ReadFile(filepath.Join(s.root, kind, id, "about.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "%s has no %s", kind, id)
	}
	if err != nil {
		return nil, err
	}
	found := &about{}
	return found, json.Unmarshal(text, found)
}

// create makes a volume or snapshot with the contents of another one (source),
// or empty; one that is there already stays as it is.
func (s *storage) create(kind, id, source string, wanted about) (*about, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if found, err := s.find(kind, id); status.Code(err) != codes.NotFound {
		return found, err
	}
	folder := filepath.Join(s.root, partial, id)
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, err
	}
	data := filepath.Join(folder, "data")
	if err := s.fill(data, source, wanted); err != nil {
		return nil, err
	}
	wanted.Created = time.Now()
	text, err := json.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, "about.json"), text, 0o600); err != nil {
		return nil, err
	}
	return &wanted, os.Rename(folder, filepath.Join(s.root, kind, id))
}

// fill makes the contents of a volume or snapshot.
func (s *storage) fill(data, source string, wanted about) error {
	if source != "" {
		if err := s.copyFrozen(source, data); err != nil {
			return err
		}
	} else if !wanted.Block {
		return os.Mkdir(data, 0o755)
	} else if err := os.WriteFile(data, nil, 0o600); err != nil {
		return err
	}
	if !wanted.Block {
		return nil
	}
	return os.Truncate(data, wanted.Size)
}

// copyFrozen copies contents while no container can change them; a block device
// is not watched for that.
func (s *storage) copyFrozen(from, to string) error {
	thaw, err := freeze(strings.TrimPrefix(from, s.root))
	if err != nil {
		return err
	}
	return errors.Join(copyTree(from, to), thaw())
}

// remove succeeds if there is no such volume or snapshot.
func (s *storage) remove(kind, id string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, err := s.find(kind, id); err != nil {
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return err
	}
	return os.RemoveAll(filepath.Join(s.root, kind, id))
}

// list returns the ids of all volumes or snapshots.
func (s *storage) list(kind string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, kind))
	var ids []string
	for _, entry := range entries {
		ids = append(ids, entry.Name())
	}
	return ids, err
}
