package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// NodePublishVolume mounts the folder of a volume for a pod, or makes a block
// device of its file.
func (d *driver) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	volume, err := d.storage.find(volumes, request.VolumeId)
	if err != nil {
		return nil, err
	}
	if err := volume.expect(isBlock(request.VolumeCapability)); err != nil {
		return nil, err
	}
	source := d.storage.data(volumes, request.VolumeId)
	if volume.Block {
		return &csi.NodePublishVolumeResponse{}, d.devices.publish(source, request.TargetPath, request.Readonly)
	}
	if err := os.MkdirAll(request.TargetPath, 0o750); err != nil {
		return nil, err
	}
	mounted, err := sameFolder(source, request.TargetPath)
	if err != nil {
		return nil, err
	}
	if !mounted {
		if err := unix.Mount(source, request.TargetPath, "", unix.MS_BIND, ""); err != nil {
			return nil, fmt.Errorf("mount %s on %s: %w", source, request.TargetPath, err)
		}
	}
	if request.Readonly {
		// A new mount of a folder that is mounted already cannot be read-only at once.
		if err := unix.Mount("", request.TargetPath, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return nil, errors.Join(err, unix.Unmount(request.TargetPath, 0))
		}
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	// EINVAL: it is no mount point.
	err := unix.Unmount(request.TargetPath, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("unmount %s: %w", request.TargetPath, err)
	}
	// Only an empty folder is removed: never the contents of a volume.
	if err := os.Remove(request.TargetPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, d.devices.unpublish(request.TargetPath)
}

func sameFolder(one, other string) (bool, error) {
	first, err := os.Stat(one)
	if err != nil {
		return false, err
	}
	second, err := os.Stat(other)
	return err == nil && os.SameFile(first, second), err
}
