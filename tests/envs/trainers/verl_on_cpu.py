"""A platform for verl 0.9.1 by its own registry, so that its FSDP engine takes steps without a GPU."""

import contextlib
import types

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform

_NOTHING = dict.fromkeys(
    ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "ipc_collect"), lambda *_: None
)
_ZERO = dict.fromkeys(
    ("current_device", "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"),
    lambda *_: 0,
)
_SEEDS = {"manual_seed": torch.manual_seed, "manual_seed_all": torch.manual_seed}
_STATE = {"get_rng_state": torch.get_rng_state, "set_rng_state": torch.set_rng_state}


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """The processor."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(
        lambda self: types.SimpleNamespace(
            **_NOTHING,
            **_ZERO,
            **_SEEDS,
            **_STATE,
            is_available=lambda: True,
            device_count=lambda: 1,
            mem_get_info=lambda *_: (0, 0),
            get_device_name=lambda *_: "cpu",
        )
    )

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"  # to which verl moves tensors

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "CPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


set_platform(PlatformCPU())
