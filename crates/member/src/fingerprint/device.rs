//! What a block device is called by itself: names that stay when its number and place change.

use std::fs;
use std::path::{Path, PathBuf};

use etcd_operator_api::contract::kind;

use super::mount::Mount;

/// How many mappings lie over one another at most.
const DEEPEST: usize = 8;

/// What the block device below a mount is called, by kind. Empty if the mount has no block device.
pub(super) fn kinds(system: &Path, mount: &Mount) -> Vec<(&'static str, String)> {
    let Some(device) = find(system, mount) else {
        return Vec::new();
    };
    let mut kinds = Vec::new();
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let uuid = name(&device)
        .filter(|_| mount.kind == "btrfs")
        .and_then(|name| file_system(system, &name));
    kinds.extend(uuid.map(|uuid| (kind::FS_UUID, uuid)));
    let whole = whole(device);
    let mut add = |kind, value: Option<String>| kinds.extend(value.map(|value| (kind, value)));
    add(
        kind::DM_UUID,
        text(&whole.join("dm/uuid")).filter(|uuid| is_of_volume(uuid)),
    );
    add(kind::WWID, either(&whole, ["device/wwid", "wwid"]));
    add(
        kind::NGUID,
        text(&whole.join("nguid")).filter(|nguid| is_set(nguid)),
    );
    add(kind::EUI, text(&whole.join("eui")).filter(|eui| is_set(eui)));
    add(
        kind::SERIAL,
        serial(&whole).filter(|serial| is_alone(system, &whole, serial)),
    );
    kinds
}

/// The directory of the device: by its number, or by its name where the file system has a number of its own.
fn find(system: &Path, mount: &Mount) -> Option<PathBuf> {
    let by_number = fs::canonicalize(system.join("dev/block").join(&mount.device));
    by_number.ok().or_else(|| {
        let name = mount.source.strip_prefix("/dev/")?;
        fs::canonicalize(system.join("class/block").join(name)).ok()
    })
}

/// The device that has names of its own: the disk of a partition, or the device below a mapping that does not identify
/// the volume, such as dm-crypt.
fn whole(mut device: PathBuf) -> PathBuf {
    for _ in 0..DEEPEST {
        let below = if device.join("partition").exists() {
            device.parent().map(Path::to_owned)
        } else if text(&device.join("dm/uuid")).is_some_and(|uuid| !is_of_volume(&uuid)) {
            only_slave(&device)
        } else {
            None
        };
        match below {
            Some(below) => device = below,
            None => break,
        }
    }
    device
}

/// The device below a mapping; `None` unless there is exactly one.
fn only_slave(device: &Path) -> Option<PathBuf> {
    let mut slaves = fs::read_dir(device.join("slaves")).ok()?.flatten();
    let slave = slaves.next()?;
    if slaves.next().is_some() {
        return None;
    }
    let path = fs::canonicalize(slave.path()).ok()?;
    // Beside this device, where its entry is a link; by name, where it is none.
    if path.is_dir() {
        Some(path)
    } else {
        Some(device.parent()?.join(slave.file_name()))
    }
}

/// Whether the UUID of a mapping is the volume's, and so the same on every node: that of LVM or of a multipath device.
fn is_of_volume(uuid: &str) -> bool {
    uuid.starts_with("LVM-") || uuid.contains("mpath-")
}

/// Whether a device has such a name: those without one show only zeros.
fn is_set(name: &str) -> bool {
    name.chars().any(|c| c.is_ascii_hexdigit() && c != '0')
}

fn serial(device: &Path) -> Option<String> {
    either(device, ["serial", "device/serial"])
}

/// Whether no other device of the node has this serial: some machines give all of theirs the same.
fn is_alone(system: &Path, device: &Path, serial: &str) -> bool {
    let own = device.file_name();
    let devices = fs::read_dir(system.join("block")).into_iter().flatten().flatten();
    let mut others = devices.filter(|other| Some(other.file_name().as_os_str()) != own);
    !others.any(|other| self::serial(&other.path()).as_deref() == Some(serial))
}

/// The UUID of the btrfs file system on a device, from sysfs, whose root is `system`. Other file systems do not show
/// theirs.
fn file_system(system: &Path, name: &str) -> Option<String> {
    let systems = fs::read_dir(system.join("fs/btrfs")).ok()?.flatten();
    let mut own = systems.filter(|entry| entry.path().join("devices").join(name).exists());
    own.next()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn either(device: &Path, places: [&str; 2]) -> Option<String> {
    places.iter().find_map(|place| text(&device.join(place)))
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
