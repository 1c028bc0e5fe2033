package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
)

// Buckets as folders, and objects as files in them. It writes in place, so what is broken off is left there: the worst that
// a store may do. The file "do" beside the buckets says how it misbehaves, in lines: call, part of the key, what.
type folderStore struct {
	log    logrus.FieldLogger
	folder string
}

// What of an object comes through before it misbehaves.
const some = 1000

func (s *folderStore) Init(config map[string]string) error {
	note("Init", config["bucket"])
	if err := framework.ValidateObjectStoreConfigKeys(config, "folder", "credentialsFile"); err != nil {
		return err
	}
	if s.folder = config["folder"]; s.folder == "" {
		return errors.New("config has no folder")
	}
	if file := config["credentialsFile"]; file != "" {
		if _, err := os.ReadFile(file); err != nil {
			return err
		}
		note("credentials", config["bucket"])
	}
	return nil
}

func (s *folderStore) told(call, key string) string {
	note(call, key)
	text, _ := os.ReadFile(filepath.Join(s.folder, "do"))
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == call && strings.Contains(key, words[1]) {
			s.log.Infof("%s of %s: %s", call, key, words[2])
			return words[2]
		}
	}
	return ""
}

func misbehave(what string) error {
	switch what {
	case "hang":
		time.Sleep(time.Hour)
	case "exit":
		os.Exit(7)
	}
	return errors.New("told to " + what)
}

func (s *folderStore) file(bucket, key string) string {
	return filepath.Join(s.folder, bucket, filepath.FromSlash(key))
}

func (s *folderStore) PutObject(bucket, key string, body io.Reader) error {
	what := s.told("PutObject", key)
	path := s.file(bucket, key)
	if _, err := os.Stat(filepath.Join(s.folder, bucket)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if what != "" {
		_, _ = io.CopyN(file, body, some)
		return misbehave(what)
	}
	if _, err = io.Copy(file, body); err == nil {
		note("stored", key)
	}
	return err
}

func (s *folderStore) ObjectExists(bucket, key string) (bool, error) {
	if what := s.told("ObjectExists", key); what != "" {
		return false, misbehave(what)
	}
	_, err := os.Stat(s.file(bucket, key))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (s *folderStore) GetObject(bucket, key string) (io.ReadCloser, error) {
	what := s.told("GetObject", key)
	file, err := os.Open(s.file(bucket, key))
	if err != nil || what == "" {
		return file, err
	}
	cut := &cutShort{Reader: io.LimitReader(file, some), what: what}
	return cut, nil
}

// The beginning of an object.
type cutShort struct {
	io.Reader
	what string
}

func (c *cutShort) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err == io.EOF && c.what != "cut" {
		return n, misbehave(c.what)
	}
	return n, err
}

func (c *cutShort) Close() error { return nil }

func (s *folderStore) keys(bucket, prefix string) ([]string, error) {
	root := filepath.Join(s.folder, bucket)
	var keys []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		key := filepath.ToSlash(strings.TrimPrefix(path, root+"/"))
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
		return nil
	})
	return keys, err
}

func (s *folderStore) ListCommonPrefixes(bucket, prefix, delimiter string) ([]string, error) {
	if what := s.told("ListCommonPrefixes", prefix); what != "" {
		return nil, misbehave(what)
	}
	keys, err := s.keys(bucket, prefix)
	var prefixes []string
	for _, key := range keys {
		if first, _, inside := strings.Cut(strings.TrimPrefix(key, prefix), delimiter); inside {
			prefixes = append(prefixes, prefix+first+delimiter)
		}
	}
	return slices.Compact(prefixes), err
}

func (s *folderStore) ListObjects(bucket, prefix string) ([]string, error) {
	switch what := s.told("ListObjects", prefix); what {
	case "":
		return s.keys(bucket, prefix)
	case "nonsense":
		return []string{"somewhere/else"}, nil
	default:
		return nil, misbehave(what)
	}
}

func (s *folderStore) DeleteObject(bucket, key string) error {
	if what := s.told("DeleteObject", key); what != "" {
		return misbehave(what)
	}
	return os.Remove(s.file(bucket, key))
}

func (s *folderStore) CreateSignedURL(string, string, time.Duration) (string, error) {
	return "", errors.New("there are no URLs of files")
}
