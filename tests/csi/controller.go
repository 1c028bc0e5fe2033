package main

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Size of a volume for which none is asked for. No size is enforced.
const defaultSize = 1 << 30

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, able := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		// Without it csi-snapshotter takes any handle for a snapshot.
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	} {
		rpc := &csi.ControllerServiceCapability_RPC{Type: able}
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc},
		})
	}
	return answer, nil
}

func (d *driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	block := isBlock(request.VolumeCapabilities...)
	size := request.GetCapacityRange().GetRequiredBytes()
	if size == 0 {
		size = defaultSize
	}
	source := ""
	if content := request.VolumeContentSource; content != nil {
		id := content.GetSnapshot().GetSnapshotId()
		snapshot, err := d.storage.find(snapshots, id)
		if err != nil {
			return nil, err
		}
		if size < snapshot.Size {
			return nil, status.Errorf(codes.OutOfRange, "snapshot %s is of %d bytes, and %d are asked for", id, snapshot.Size, size)
		}
		if err := snapshot.expect(block); err != nil {
			return nil, err
		}
		source = d.storage.data(snapshots, id)
	}
	volume, err := d.storage.create(volumes, request.Name, source, about{Size: size, Block: block})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:      request.Name,
		CapacityBytes: volume.Size,
		ContentSource: request.VolumeContentSource,
	}}, nil
}

func (d *driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, d.storage.remove(volumes, request.VolumeId)
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	volume, err := d.storage.find(volumes, request.VolumeId)
	if err != nil {
		return nil, err
	}
	if err := volume.expect(isBlock(request.VolumeCapabilities...)); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: request.VolumeCapabilities,
	}}, nil
}

func (d *driver) CreateSnapshot(_ context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	volume, err := d.storage.find(volumes, request.SourceVolumeId)
	if err != nil {
		return nil, err
	}
	data := d.storage.data(volumes, request.SourceVolumeId)
	wanted := about{Size: volume.Size, Block: volume.Block, Source: request.SourceVolumeId}
	snapshot, err := d.storage.create(snapshots, request.Name, data, wanted)
	if err != nil {
		return nil, err
	}
	if snapshot.Source != request.SourceVolumeId {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is of volume %s", request.Name, snapshot.Source)
	}
	return &csi.CreateSnapshotResponse{Snapshot: described(request.Name, snapshot)}, nil
}

func (d *driver) DeleteSnapshot(_ context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	return &csi.DeleteSnapshotResponse{}, d.storage.remove(snapshots, request.SnapshotId)
}

func (d *driver) ListSnapshots(_ context.Context, request *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	ids, err := d.storage.list(snapshots)
	if err != nil {
		return nil, err
	}
	answer := &csi.ListSnapshotsResponse{}
	for _, id := range ids {
		if request.SnapshotId != "" && request.SnapshotId != id {
			continue
		}
		snapshot, err := d.storage.find(snapshots, id)
		if status.Code(err) == codes.NotFound {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if request.SourceVolumeId == "" || request.SourceVolumeId == snapshot.Source {
			answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: described(id, snapshot)})
		}
	}
	return answer, nil
}

func described(id string, snapshot *about) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId:     id,
		SourceVolumeId: snapshot.Source,
		SizeBytes:      snapshot.Size,
		CreationTime:   timestamppb.New(snapshot.Created),
		ReadyToUse:     true,
	}
}

func isBlock(capabilities ...*csi.VolumeCapability) bool {
	return slices.ContainsFunc(capabilities, func(one *csi.VolumeCapability) bool { return one.GetBlock() != nil })
}

// expect is an error unless a volume or snapshot is of this mode.
func (a *about) expect(block bool) error {
	if a.Block != block {
		return status.Errorf(codes.InvalidArgument, "block volume: %t is asked for, and it is %t", block, a.Block)
	}
	return nil
}
