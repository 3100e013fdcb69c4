"""The structs and numbers of ``include/forebay.h``, field for field."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_uint8, c_uint32, c_uint64, sizeof
from enum import IntEnum

#: Layout of every struct below.
VERSION = 1


class ResourceKind(IntEnum):
    """``FOREBAY_RESOURCE_KIND_*``."""

    DEVICE = 0
    PINNED = 1
    MANAGED = 2
    VIRTUAL = 3
    HOST = 4
    POOL = 5


class PoolSource(IntEnum):
    """``FOREBAY_POOL_SOURCE_*``: which driver pool a resource uses."""

    NEW = 0
    CURRENT = 1
    DEFAULT = 2
    HANDLE = 3


class Location(IntEnum):
    """``FOREBAY_LOCATION_*``."""

    DEVICE = 0
    HOST = 1
    HOST_NUMA = 2
    HOST_NUMA_CURRENT = 3
    NONE = 4


class Attribute(IntEnum):
    """``FOREBAY_ATTRIBUTE_*``: those of a driver pool."""

    REUSE_FOLLOW_EVENT_DEPENDENCIES = 1
    REUSE_ALLOW_OPPORTUNISTIC = 2
    REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3
    RELEASE_THRESHOLD = 4
    RESERVED_MEM_CURRENT = 5
    RESERVED_MEM_HIGH = 6
    USED_MEM_CURRENT = 7
    USED_MEM_HIGH = 8


class Options(Structure):
    """``forebay_pool_options``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("driver", c_char_p),
        ("limit", c_uint64),
        ("fraction", c_double),
        ("max_chunk", c_uint64),
        ("location", c_uint32),
        ("numa_id", c_int32),
        ("grow_first", c_uint32),
        ("give_back_ms", c_uint32),
        ("reserved", c_uint64 * 7),
    ]


class Stats(Structure):
    """``forebay_pool_stats``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("live", c_uint64),
        ("live_peak", c_uint64),
        ("physical", c_uint64),
        ("physical_peak", c_uint64),
        ("limit", c_uint64),
        ("free_bytes", c_uint64),
        ("largest_free", c_uint64),
        ("private_bytes", c_uint64),
        ("allocations", c_uint64),
        ("frees", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("steals", c_uint64),
        ("growths", c_uint64),
        ("waits", c_uint64),
        ("releases", c_uint64),
        ("out_of_memory", c_uint64),
        ("live_by_framework", c_uint64 * 8),
        ("streams", c_uint64),
        ("driver_calls", c_uint64),
        ("driver_ns", c_uint64),
        ("free_blocks", c_uint64),
        ("making_ns", c_uint64),
        ("waiting_ns", c_uint64),
        ("reserved", c_uint64 * 5),
    ]


class DeviceOptions(Structure):
    """``forebay_device_resource_options``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("source", c_uint32),
        ("ipc_enabled", c_uint32),
        ("max_size", c_uint64),
        ("handle", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class PinnedOptions(Structure):
    """``forebay_pinned_resource_options``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("source", c_uint32),
        ("ipc_enabled", c_uint32),
        ("numa_id", c_int32),
        ("device", c_int32),
        ("own_pool", c_uint32),
        ("reserved0", c_uint32),
        ("max_size", c_uint64),
        ("handle", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class ManagedOptions(Structure):
    """``forebay_managed_resource_options``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("source", c_uint32),
        ("preferred_location_type", c_uint32),
        ("preferred_location", c_int32),
        ("device", c_int32),
        ("handle", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class VirtualOptions(Structure):
    """``forebay_virtual_resource_options``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("allocation_type", c_uint32),
        ("location_type", c_uint32),
        ("handle_type", c_uint32),
        ("granularity", c_uint32),
        ("gpu_direct_rdma", c_uint32),
        ("self_access", c_uint32),
        ("peer_access", c_uint32),
        ("peer_count", c_uint32),
        ("peers", POINTER(c_int32)),
        ("addr_hint", c_uint64),
        ("addr_align", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class HostOptions(Structure):
    """``forebay_host_resource_options``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("portable", c_uint32),
        ("mapped", c_uint32),
        ("write_combined", c_uint32),
        ("reserved0", c_uint32),
        ("device", c_int32),
        ("reserved1", c_uint32),
        ("reserved", c_uint64 * 4),
    ]


class ResourceInfo(Structure):
    """``forebay_resource_info``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("kind", c_uint32),
        ("device_id", c_int32),
        ("numa_id", c_int32),
        ("is_handle_owned", c_uint32),
        ("is_device_accessible", c_uint32),
        ("is_host_accessible", c_uint32),
        ("is_managed", c_uint32),
        ("is_ipc_enabled", c_uint32),
        ("is_mapped", c_uint32),
        ("is_closed", c_uint32),
        ("has_uuid", c_uint32),
        ("preferred_location_type", c_uint32),
        ("preferred_location", c_int32),
        ("reserved0", c_uint32),
        ("uuid", c_uint8 * 16),
        ("handle", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class BufferInfo(Structure):
    """``forebay_buffer_info``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("handle", c_uint64),
        ("bytes", c_uint64),
        ("stream", c_uint64),
        ("device_id", c_int32),
        ("is_device_accessible", c_uint32),
        ("is_host_accessible", c_uint32),
        ("is_managed", c_uint32),
        ("is_mapped", c_uint32),
        ("is_closed", c_uint32),
        ("ipc_path", c_uint32),
        ("has_resource", c_uint32),
        ("stream_device", c_int32),
        ("reserved0", c_uint32),
        ("reserved", c_uint64 * 3),
    ]


class IpcDescriptor(Structure):
    """``forebay_ipc_descriptor``: plain bytes."""

    _fields_ = [("bytes", c_uint8 * 256)]


class Block(Structure):
    """``forebay_block``."""

    _fields_ = [
        ("size", c_uint32),
        ("version", c_uint32),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("state", c_uint32),
        ("framework", c_uint32),
        ("stream", c_uint64),
        ("has_stream", c_uint32),
        ("is_private", c_uint32),
        ("private_first", c_uint64),
        ("private_second", c_uint64),
        ("requested", c_uint64),
        ("reserved", c_uint64),
    ]


#: The C name of each struct; ``tests/python/test_header.py`` compares their fields.
BY_C_NAME: dict[str, type[Structure]] = {
    "forebay_pool_options": Options,
    "forebay_pool_stats": Stats,
    "forebay_device_resource_options": DeviceOptions,
    "forebay_pinned_resource_options": PinnedOptions,
    "forebay_managed_resource_options": ManagedOptions,
    "forebay_virtual_resource_options": VirtualOptions,
    "forebay_host_resource_options": HostOptions,
    "forebay_resource_info": ResourceInfo,
    "forebay_buffer_info": BufferInfo,
    "forebay_ipc_descriptor": IpcDescriptor,
    "forebay_block": Block,
}

BUFFER_INFO_SIZE = sizeof(BufferInfo)
RESOURCE_INFO_SIZE = sizeof(ResourceInfo)
STATS_SIZE = sizeof(Stats)
