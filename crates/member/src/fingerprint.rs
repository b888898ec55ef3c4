//! By what a volume is known again: only what stays with it, whatever name or number its device has today. What cannot
//! be told is left out, as kinds are compared only where both sides have them.

mod device;
mod mount;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use etcd_operator_api::contract::{Fingerprint, kind};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::volume::Volume;
use mount::Mount;

/// The files in which the kernel shows mounts and devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// The mounts of this process.
    pub mounts: PathBuf,
    /// The devices.
    pub system: PathBuf,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            mounts: "/proc/self/mountinfo".into(),
            system: "/sys".into(),
        }
    }
}

/// The fingerprint of the volume as it is now. What cannot be told is left out and is no error.
pub fn of(volume: &Volume, surroundings: &Surroundings) -> Fingerprint {
    let mut print = Fingerprint::default();
    let mut add = |kind: &str, value: String| print.0.insert(kind.to_owned(), value);
    let mounts = fs::read_to_string(&surroundings.mounts).unwrap_or_default();
    let root = fs::canonicalize(volume.root()).unwrap_or_else(|_| volume.root().to_owned());
    let mount = mount::of(&mounts, &root);
    if let Some(mount) = &mount {
        if mount.has_stable_root() {
            add(kind::ROOT, mount.root.clone());
        }
        if let Some(source) = mount.share() {
            add(kind::SOURCE, source);
        }
        for (kind, value) in device::kinds(&surroundings.system, mount) {
            add(kind, value);
        }
    }
    if mount.as_ref().is_none_or(Mount::has_stable_inodes) {
        let own = volume.own();
        if let Ok(metadata) = fs::metadata(&own) {
            add(kind::INODE, metadata.ino().to_string());
        }
        if let Ok(found) = statx(CWD, &own, AtFlags::empty(), StatxFlags::BTIME)
            && StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME)
        {
            let birth = found.stx_btime;
            add(kind::BIRTH, format!("{}.{:09}", birth.tv_sec, birth.tv_nsec));
        }
    }
    print
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::samples::Scratch;

    /// A volume in a made-up surrounding.
    struct Stage {
        scratch: Scratch,
        root: PathBuf,
    }

    impl Stage {
        fn new() -> Self {
            let scratch = Scratch::new();
            let root = scratch.path().to_owned();
            fs::create_dir_all(root.join("volume/operator")).expect("a directory");
            Self { scratch, root }
        }

        fn file(&self, path: &str, text: &str) -> &Self {
            self.scratch.file(&format!("sys/{path}"), text);
            self
        }

        fn link(&self, path: &str, to: &str) -> &Self {
            let path = self.root.join("sys").join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::os::unix::fs::symlink(self.root.join("sys").join(to), path).expect("a link");
            self
        }

        /// The fingerprint with a mount of this device, root, type and source.
        fn print(&self, mount: [&str; 4]) -> Vec<(String, String)> {
            let [device, root, kind, source] = mount;
            let place = self.root.join("volume");
            let place = place.display();
            let line = format!("36 35 {device} {root} {place} rw,noatime shared:1 - {kind} {source} rw\n");
            let mounts = self.root.join("mountinfo");
            fs::write(&mounts, line).expect("a file");
            let surroundings = Surroundings {
                mounts,
                system: self.root.join("sys"),
            };
            let volume = Volume::at(self.root.join("volume"));
            of(&volume, &surroundings).0.into_iter().collect()
        }

        /// The same, without the inode and birth of this very directory.
        fn stable(&self, mount: [&str; 4]) -> Vec<(String, String)> {
            let mut kinds = self.print(mount);
            kinds.retain(|(kind, _)| ![kind::INODE, kind::BIRTH].contains(&kind.as_str()));
            kinds
        }
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn a_disk_is_known_by_its_own_names_whatever_its_number() {
        let stage = Stage::new();
        stage
            .file("devices/a/block/sdb/device/wwid", "naa.600a\n")
            .file("devices/a/block/sdb/serial", "S1\n")
            .file("devices/a/block/sdb/sdb1/partition", "1\n")
            .file("devices/b/block/sdc/serial", "S2\n")
            .link("dev/block/8:16", "devices/a/block/sdb")
            .link("dev/block/8:17", "devices/a/block/sdb/sdb1")
            .link("block/sdb", "devices/a/block/sdb")
            .link("block/sdc", "devices/b/block/sdc");
        let wanted = pairs(&[("root", "/"), ("serial", "S1"), ("wwid", "naa.600a")]);
        assert_eq!(stage.stable(["8:16", "/", "ext4", "/dev/sdb"]), wanted);
        assert_eq!(
            stage.stable(["8:17", "/", "ext4", "/dev/sdb1"]),
            wanted,
            "a partition"
        );
        assert_eq!(
            stage.stable(["8:99", "/", "ext4", "/dev/sdz"]),
            pairs(&[("root", "/")])
        );
    }

    #[test]
    fn a_serial_that_two_devices_have_or_that_is_blank_says_nothing() {
        let stage = Stage::new();
        stage
            .file("devices/a/block/vda/serial", "overlayblk\n")
            .file("devices/b/block/vdb/serial", "overlayblk\n")
            .file("devices/c/block/vdc/serial", "  \n")
            .link("dev/block/253:0", "devices/a/block/vda")
            .link("dev/block/253:32", "devices/c/block/vdc");
        for name in ["vda", "vdb", "vdc"] {
            let device = ["a", "b", "c"][usize::from(name.as_bytes()[2] - b'a')];
            stage.link(
                &format!("block/{name}"),
                &format!("devices/{device}/block/{name}"),
            );
        }
        assert_eq!(
            stage.stable(["253:0", "/", "xfs", "/dev/vda"]),
            pairs(&[("root", "/")])
        );
        assert_eq!(
            stage.stable(["253:32", "/", "xfs", "/dev/vdc"]),
            pairs(&[("root", "/")])
        );
    }

    #[test]
    fn other_kinds_of_devices_are_known_by_theirs() {
        let stage = Stage::new();
        stage
            .file("block/nvme0n1/nguid", "00000000-0000-0000-0000-000000000000\n")
            .file("block/nvme0n1/eui", "00 25 38 00\n")
            .file("block/nvme0n1/wwid", "eui.00253800\n")
            .file("block/dm-0/dm/uuid", "LVM-abc\n")
            .file("block/dm-1/dm/uuid", "CRYPT-LUKS2-abc-name\n")
            .file("block/dm-1/slaves/nvme0n1", "")
            .file("fs/btrfs/uuid-of-btrfs/devices/nvme0n1", "")
            .link("dev/block/259:0", "block/nvme0n1")
            .link("dev/block/252:0", "block/dm-0")
            .link("dev/block/252:1", "block/dm-1")
            .link("class/block/nvme0n1", "block/nvme0n1");
        let nvme = [("eui", "00 25 38 00"), ("root", "/"), ("wwid", "eui.00253800")];
        assert_eq!(stage.stable(["259:0", "/", "xfs", "/dev/nvme0n1"]), pairs(&nvme));
        assert_eq!(
            stage.stable(["252:0", "/", "xfs", "/dev/mapper/v"]),
            pairs(&[("dmUUID", "LVM-abc"), ("root", "/")])
        );
        assert_eq!(
            stage.stable(["252:1", "/", "xfs", "/dev/mapper/c"]),
            pairs(&nvme),
            "below the cipher"
        );
        assert_eq!(
            stage.stable(["0:45", "/sub", "btrfs", "/dev/nvme0n1"]),
            pairs(&[
                ("eui", "00 25 38 00"),
                ("fsUUID", "uuid-of-btrfs"),
                ("root", "/sub"),
                ("wwid", "eui.00253800")
            ])
        );
    }

    #[test]
    fn a_share_is_known_by_where_it_comes_from() {
        let stage = Stage::new();
        for (kind, source, wanted) in [
            ("nfs", "nas:/export/a", "nfs nas:/export/a"),
            ("nfs4", "nas:/export/a", "nfs nas:/export/a"),
            ("cifs", "//nas/a", "cifs //nas/a"),
            (
                "ceph",
                "10.0.0.1:6789,10.0.0.2:6789:/volumes/a",
                "ceph /volumes/a",
            ),
            ("ceph", "user@fsid.name=/volumes/a", "ceph /volumes/a"),
            ("fuse.glusterfs", "gluster:a", "fuse.glusterfs gluster:a"),
        ] {
            let found = stage.stable(["0:45", "/", kind, source]);
            assert_eq!(found, pairs(&[("root", "/"), ("source", wanted)]), "{kind}");
        }
        assert_eq!(
            stage.stable(["0:45", "/", "tmpfs", "tmpfs"]),
            pairs(&[("root", "/")])
        );
    }

    #[test]
    fn a_copy_of_the_files_is_known_by_its_new_directory() {
        let stage = Stage::new();
        let mount = ["8:99", "/a\\040b", "xfs", "/dev/sdz"];
        let before = Fingerprint(stage.print(mount).into_iter().collect());
        assert_eq!(before.0["root"], "/a b");
        assert!(before.0.contains_key(kind::INODE), "{before:?}");
        let own = stage.root.join("volume/operator");
        // Both exist at once, or the file system may give the same inode again.
        fs::rename(&own, stage.root.join("before")).expect("renamed");
        fs::create_dir(Path::new(&own)).expect("made again");
        let after = Fingerprint(stage.print(mount).into_iter().collect());
        assert!(before.difference(&after).is_some(), "{before:?} {after:?}");
        let guessed = stage.print(["0:45", "/", "fuse.sshfs", "host:/a"]);
        assert!(
            guessed
                .iter()
                .all(|(kind, _)| kind != kind::INODE && kind != kind::BIRTH)
        );
    }
}
