package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxAttempts bounds how often another program may take the free loop device
// first.
const maxAttempts = 20

// devices are the loop devices of block volumes, by the path where kubelet
// expects them. The kernel detaches a device when nobody has it open any more:
// at the latest when this program and the containers have ended.
type devices struct {
	mutex sync.Mutex
	open  map[string]*os.File
}

// publish makes a file the contents of a new block device at a path.
func (d *devices) publish(file, target string, readOnly bool) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.open[target] != nil {
		return nil
	}
	device, err := attach(file, readOnly)
	if err != nil {
		return fmt.Errorf("attach %s: %w", file, err)
	}
	if err := makeNode(device, target); err != nil {
		return errors.Join(err, device.Close())
	}
	if d.open == nil {
		d.open = map[string]*os.File{}
	}
	d.open[target] = device
	return nil
}

// unpublish detaches the device of a path, if there is one.
func (d *devices) unpublish(target string) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	device := d.open[target]
	if device == nil {
		return nil
	}
	delete(d.open, target)
	return device.Close()
}

// makeNode makes a second name of a device, in place of one that is there.
func makeNode(device *os.File, path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &stat); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(stat.Rdev)); err != nil {
		return fmt.Errorf("make device %s: %w", path, err)
	}
	return nil
}

// attach opens a free loop device whose contents are those of a file.
func attach(path string, readOnly bool) (*os.File, error) {
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readOnly {
		mode, flags = os.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	file, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for range maxAttempts {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), mode, 0)
		if err != nil {
			return nil, err
		}
		config := &unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: flags}}
		err = unix.IoctlLoopConfigure(int(device.Fd()), config)
		if err == nil {
			return device, nil
		}
		if err := errors.Join(err, device.Close()); !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("another program takes every free loop device")
}
