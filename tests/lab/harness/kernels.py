# SPDX-License-Identifier: Apache-2.0
"""Debian kernels for the guest: image, the modules that Debian leaves out, initramfs.

Nothing of it is installed: image, headers and source are unpacked in the cache and built there, so this
machine's own kernel packages and boot loader are not touched.
"""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from .common import LAB, LabError, cache_folder, cache_lock, command, recipe, read_or_none, say
from .packages import download, unpack

SERIES = ("6.1", "6.12")  # that the lab is tried with
# In the kernel source, and built here: Debian turns them off.
MODULE_SOURCES = ("drivers/infiniband/sw/siw", "drivers/infiniband/ulp/rtrs", "drivers/block/rnbd")
MODULE_OPTIONS = ("CONFIG_RDMA_SIW=m", "CONFIG_INFINIBAND_RTRS=m", "CONFIG_INFINIBAND_RTRS_CLIENT=m",
                  "CONFIG_INFINIBAND_RTRS_SERVER=m", "CONFIG_BLK_DEV_RNBD=y", "CONFIG_BLK_DEV_RNBD_CLIENT=m",
                  "CONFIG_BLK_DEV_RNBD_SERVER=m")
BOOT_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay", "virtio_console", "virtio_net",
                "virtio_rng")
# More than half of the image, and nothing that a peer of verbena could want.
LEFT_OUT = ("sound", "drivers/gpu", "drivers/media", "drivers/usb", "drivers/iio", "drivers/staging",
            "drivers/net/wireless", "drivers/net/ethernet", "drivers/scsi", "drivers/hwmon", "drivers/hid")


@dataclasses.dataclass
class Kernel:
    series: str
    folder: pathlib.Path

    @property
    def release(self):
        return (self.folder / "release").read_text(encoding="ascii").strip()

    @property
    def modules(self):
        return self.folder / "lib/modules" / self.release


def check_names(series):
    for name in series:
        if not re.fullmatch(r"\d+\.\d+", name):
            raise LabError(f"{name!r} is no kernel series; {' and '.join(SERIES)} are")


def prepare(series, install):
    kernel = Kernel(series, cache_folder() / "kernels" / series)
    with cache_lock():
        prepare_kernel(kernel, install)
        prepare_initramfs(kernel)
    return kernel


def prepare_kernel(kernel, install):
    made_from = recipe(*MODULE_SOURCES, *MODULE_OPTIONS, *LEFT_OUT)
    if read_or_none(kernel.folder / "recipe") == made_from:
        return
    if not install:
        raise LabError(f"kernel {kernel.series} is not prepared; `lab prepare --kernel {kernel.series}` downloads the "
                       f"Debian packages linux-image, linux-headers and linux-source of {kernel.series}")
    begun = time.monotonic()
    new = Kernel(kernel.series, kernel.folder.with_name(f"{kernel.series}.new"))
    shutil.rmtree(new.folder, ignore_errors=True)
    new.folder.mkdir(parents=True)
    download_and_build(new)
    (new.folder / "recipe").write_text(made_from, encoding="ascii")
    shutil.rmtree(kernel.folder, ignore_errors=True)
    new.folder.rename(kernel.folder)
    say(f"kernel {kernel.release} prepared in {time.monotonic() - begun:.0f} s")


def prepare_initramfs(kernel):
    made_from = recipe(*BOOT_MODULES, (LAB / "guest/init").read_text(encoding="utf-8"))
    if read_or_none(kernel.folder / "initramfs.recipe") != made_from:
        make_initramfs(kernel)
        (kernel.folder / "initramfs.recipe").write_text(made_from, encoding="ascii")


def download_and_build(kernel):
    image, headers, source = newest(kernel.series)
    release = image.removeprefix("linux-image-")
    (kernel.folder / "release").write_text(release + "\n", encoding="ascii")
    say(f"downloading {image}, its headers and source")
    with tempfile.TemporaryDirectory(dir=kernel.folder) as name:
        temporary = pathlib.Path(name)
        archives = download([image, source, *headers], temporary / "debs")
        excluded = [f"--exclude=./lib/modules/{release}/kernel/{folder}" for folder in LEFT_OUT]
        unpack(archives[0], kernel.folder, *excluded, f"./boot/vmlinuz-{release}", f"./lib/modules/{release}")
        (kernel.folder / f"boot/vmlinuz-{release}").rename(kernel.folder / "vmlinuz")
        for archive in archives[1:]:
            unpack(archive, temporary, "./usr/lib" if archive.name.startswith("linux-kbuild") else "./usr/src")
        say("building siw, rtrs and rnbd")
        build_modules(kernel, temporary)
    command("depmod", "-b", kernel.folder, release)


def newest(series):
    """The image, headers and source packages of the newest kernel whose source the archive has too."""
    source = f"linux-source-{series}"
    pattern = rf"^linux-image-{re.escape(series)}\.[0-9]+(-[0-9]+|\+deb[0-9]+)-amd64$"
    names = [line.split()[0] for line in command("apt-cache", "search", "--names-only", pattern).splitlines()]
    images = {version: name for name, version in candidates(names).items()}
    # The archive has the source of an update some hours before its signed images.
    sources = [line.split("|")[1].strip() for line in command("apt-cache", "madison", source).splitlines()]
    version = next((each for each in sources if each in images), None)
    if version is None:
        raise LabError(f"apt knows no linux-image of series {series} whose version is one of {source} "
                       f"({', '.join(sources)}); run apt-get update, or add the archive that has them")
    image = images[version]
    headers = image.replace("-image-", "-headers-")
    # The kernel's own packages only: the compiler is among the packages of this machine.
    needed = re.findall(r"Depends: (linux-headers-\S+-common|linux-kbuild-\S+)", command("apt-cache", "depends", headers))
    return image, [headers, *needed], f"{source}={version}"


def candidates(names):
    """The version that apt would install of each."""
    policy = command("apt-cache", "policy", *names, env={**os.environ, "LC_ALL": "C"})
    return dict(re.findall(r"^(\S+):\n.*\n  Candidate: (\S+)", policy, re.M))


def build_modules(kernel, tree):
    """All in one build, so that rnbd finds the symbols of rtrs."""
    work = tree / "modules"
    work.mkdir()
    archive = next((tree / "usr/src").glob("linux-source-*.tar.xz"))
    top = archive.name.removesuffix(".tar.xz")
    folders = [f"{top}/{folder}" for folder in MODULE_SOURCES]
    command("tar", "-xJf", archive, "-C", work, *folders)
    for folder in folders:
        (work / folder).rename(work / pathlib.Path(folder).name)
    names = [pathlib.Path(folder).name for folder in MODULE_SOURCES]
    (work / "Kbuild").write_text("obj-m := " + " ".join(f"{name}/" for name in names) + "\n", encoding="ascii")

    headers = tree / "usr/src" / f"linux-headers-{kernel.release}"
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{tree}/usr/src/"))
    # Type information for BPF needs pahole, and nobody here reads it.
    (headers / "vmlinux").unlink(missing_ok=True)
    command("make", "-s", f"-j{os.cpu_count()}", "-C", headers, f"M={work}", f"KCFLAGS=-I{work}/rtrs", *MODULE_OPTIONS,
            "modules")
    extra = kernel.modules / "extra"
    extra.mkdir()
    for module in work.rglob("*.ko"):
        shutil.copy(module, extra)


def make_initramfs(kernel):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder in ("bin", "dev", "layer", "lower", "modules", "new", "proc", "sys", "upper"):
            (root / folder).mkdir()
        shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "bin/busybox")
        shutil.copy(LAB / "guest/init", root / "init")
        order = []
        for module in BOOT_MODULES:
            shown = command("modprobe", "-d", kernel.folder, "-S", kernel.release, "--show-depends", module)
            order += [path for path in re.findall(r"^insmod (\S+)", shown, re.M) if path not in order]
        for path in order:
            copy_module(path, root / "modules")
        plain = [pathlib.Path(path).name.removesuffix(".xz") for path in order]
        (root / "modules/order").write_text("\n".join(plain) + "\n", encoding="ascii")
        with open(kernel.folder / "initramfs.zst", "wb") as target:
            subprocess.run("find . | cpio -o -H newc --quiet | zstd -q", shell=True, cwd=root, stdout=target, check=True)


def copy_module(path, folder):
    shutil.copy(path, folder)
    if path.endswith(".xz"):
        command("xz", "-d", folder / pathlib.Path(path).name)
