//! Disks for this crate's tests: one that is whole, others that differ from it, and directories to put them in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use etcd_operator_api::contract::{Fingerprint, Identity, ListedMember, kind};

use crate::verdict::Expected;
use crate::view::{Data, DiskView, IdentityFile, LogEnd, LogHead, Store};

/// The cluster's ID.
pub(crate) const OWN: &str = "cdf818194e3a8c32";
/// The member's ID.
pub(crate) const MEMBER: &str = "8e9e05c52164694d";

/// What the pod of the disk expects.
pub(crate) fn expected() -> Expected {
    Expected {
        cluster_uid: "cluster".into(),
        member: "orders-0".into(),
        incarnation: 2,
    }
}

/// What the disk says.
pub(crate) fn identity() -> Identity {
    Identity {
        version: 1,
        cluster_uid: "cluster".into(),
        cluster_id: Some(OWN.into()),
        member: "orders-0".into(),
        member_id: Some(MEMBER.into()),
        incarnation: 2,
        fingerprint: fingerprint(),
        ran: true,
        starts: 7,
    }
}

/// By what the volume is known.
pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint([(kind::WWID.to_owned(), "naa.600".to_owned())].into())
}

fn listed(id: &str, name: &str) -> ListedMember {
    ListedMember {
        id: id.into(),
        name: name.into(),
        peer_urls: vec![format!("http://{name}.orders.shop.svc:2380")],
    }
}

/// The data of a member of two that has served.
pub(crate) fn store() -> Store {
    Store {
        head: Ok(LogHead {
            cluster: OWN.parse().expect("an ID"),
            member: MEMBER.parse().expect("an ID"),
        }),
        end: Some(LogEnd {
            has_client_entries: true,
            ..LogEnd::default()
        }),
        database: Ok(()),
        members: vec![listed(MEMBER, "orders-0"), listed("aa", "orders-1")],
    }
}

/// The same, as what lies in the data's place.
pub(crate) fn data() -> Data {
    Data::Logged(store())
}

/// A disk with this identity and data.
pub(crate) fn disk(identity: Identity, data: Data) -> DiskView {
    DiskView {
        identity: IdentityFile::Found(identity),
        data,
        fingerprint: fingerprint(),
        ..DiskView::default()
    }
}

/// A disk that may start.
pub(crate) fn whole() -> DiskView {
    disk(identity(), data())
}

/// A disk that may start but for this.
pub(crate) fn with_store(change: impl FnOnce(&mut Store)) -> DiskView {
    let mut store = store();
    change(&mut store);
    disk(identity(), Data::Logged(store))
}

/// A directory that is gone when the test ends.
pub(crate) struct Scratch {
    root: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("etcd-operator-member-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&root).expect("a directory");
        Self { root }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    /// Writes a file, with the directories it is in.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("written");
    }

    /// Writes a program that is this script. Another process writes it: no test that starts a program meanwhile keeps the file
    /// open, and a file that is open for writing cannot be run.
    pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
        let (text, path) = (self.root.join("script"), self.root.join(name));
        self.file("script", format!("#!/bin/sh\n{script}\n"));
        let mut install = Command::new("install");
        let status = install.args(["-m", "755"]).args([&text, &path]).status();
        assert!(status.expect("install").success());
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}
