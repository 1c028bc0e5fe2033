package inspect

import (
	"compress/gzip"
	"io"
)

// GzipSize is the number of bytes that Go's gzip makes of the input, at its
// default level.
func GzipSize(in io.Reader) (int64, error) {
	var out sink
	zipper := gzip.NewWriter(&out)
	if _, err := io.Copy(zipper, in); err != nil {
		return 0, err
	}
	if err := zipper.Close(); err != nil {
		return 0, err
	}
	return out.written, nil
}

// sink counts the bytes written to it.
type sink struct {
	written int64
}

func (s *sink) Write(data []byte) (int, error) {
	s.written += int64(len(data))
	return len(data), nil
}
