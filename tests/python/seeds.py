"""What the documents that this interface follows ask for: names, parameters and attributes, by document.

A parameter list has the names in order, without self or cls; a star stands before keyword-only ones. A method's value may name
what kind it is. `tests/python/test_seeds.py` compares this with the package, and with the documents where they are at hand.
"""

POOL_ATTRIBUTES = [
    "reuse_follow_event_dependencies",
    "reuse_allow_opportunistic",
    "reuse_allow_internal_dependencies",
    "release_threshold",
    "reserved_mem_current",
    "reserved_mem_high",
    "used_mem_current",
    "used_mem_high",
]

DOCUMENTS = {
    "000": {
        "class": "PinnedMemoryResource",
        "parameters": ["options"],
        "methods": {
            "allocate": ["size", "stream"],
            "close": [],
            "deallocate": ["ptr", "size", "stream"],
            "from_allocation_handle": ["alloc_handle"],
            "from_registry": ["uuid"],
            "get_allocation_handle": [],
            "register": ["uuid"],
        },
        "attributes": {
            "attributes": "_MemPoolAttributes",
            "device_id": int,
            "handle": object,
            "is_device_accessible": bool,
            "is_handle_owned": bool,
            "is_host_accessible": bool,
            "is_ipc_enabled": bool,
            "is_mapped": bool,
            "numa_id": int,
            "uuid": object,
        },
    },
    "001": {
        "class": "Buffer",
        "parameters": None,  # not made directly
        "methods": {
            "close": ["stream"],
            "copy_from": ["src", "*", "stream"],
            "copy_to": ["dst", "*", "stream"],
            "from_handle": ["ptr", "size", "mr"],
            "from_ipc_descriptor": ["mr", "ipc_buffer", "stream"],
            "get_ipc_descriptor": [],
        },
        "attributes": {
            "device_id": int,
            "handle": object,
            "is_device_accessible": bool,
            "is_host_accessible": bool,
            "memory_resource": "MemoryResource",
            "size": int,
        },
    },
    "004": {
        "class": "VirtualMemoryResourceOptions",
        "parameters": [
            "allocation_type",
            "location_type",
            "handle_type",
            "granularity",
            "gpu_direct_rdma",
            "addr_hint",
            "addr_align",
            "peers",
            "self_access",
            "peer_access",
        ],
        "methods": {},
        "attributes": {
            "allocation_type": str,
            "location_type": str,
            "handle_type": str,
            "granularity": str,
            "gpu_direct_rdma": bool,
            "addr_hint": int,
            "addr_align": object,
            "peers": tuple,
            "self_access": str,
            "peer_access": str,
        },
    },
}

#: The defaults that document 004 gives.
VIRTUAL_DEFAULTS = {
    "allocation_type": "pinned",
    "location_type": "device",
    "handle_type": "posix_fd",
    "granularity": "recommended",
    "gpu_direct_rdma": False,
    "addr_hint": 0,
    "addr_align": None,
    "peers": (),
    "self_access": "rw",
    "peer_access": "rw",
}

#: What these documents refer to.
REFERRED = {
    "DeviceMemoryResource": ["device_id", "options"],
    "DeviceMemoryResourceOptions": ["ipc_enabled", "max_size"],
    "HostMemoryResource": ["portable", "mapped", "write_combined"],
    "ManagedMemoryResource": ["options"],
    "ManagedMemoryResourceOptions": ["preferred_location", "preferred_location_type"],
    "PinnedMemoryResourceOptions": ["ipc_enabled", "max_size", "numa_id"],
    "PoolMemoryResource": ["device_id", "pool"],
    "VirtualMemoryResource": ["device_id", "config"],
}
