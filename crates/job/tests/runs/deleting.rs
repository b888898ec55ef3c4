//! Deleting: what is named and ours, and nothing else; cut off anywhere, no ghost of a backup is left that counts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;

use bytes::Bytes;
use etcd_operator_api::contract::{JobOrder, JobOutcome, Naming, Task};
use etcd_operator_api::retention::Keep;
use etcd_operator_job::{catalog, list, names, prune};
use etcd_operator_store::backend::{
    Backend, BackendFuture, ByteRange, Etag, ListedObject, ObjectBody, ObjectMetadata, Page, Part,
    PendingUpload, StoreLocation, UnfinishedUpload, UploadId, UploadToken,
};
use etcd_operator_store::error::{Class, Fault};
use etcd_operator_store::local::Local;
use etcd_operator_store::{Key, Store};

use crate::support::{Bench, Fake, order, policy, told};

/// What goes wrong with deleting.
#[derive(Debug)]
enum Harm {
    /// Names that end so are locked.
    Locked(String),
    /// After so many changes the store is gone.
    Gone(usize),
    /// There is no room for anything new.
    Full,
    /// Before the second listing these names disappear.
    Loses(u8, Vec<String>),
}

/// A store that does not delete everything.
#[derive(Debug)]
struct Stubborn {
    inner: Local,
    folder: PathBuf,
    harm: Mutex<Harm>,
}

impl Stubborn {
    fn change<'a, T: Send + 'a>(
        &self,
        name: &str,
        deletes: bool,
        then: BackendFuture<'a, T>,
    ) -> BackendFuture<'a, T> {
        let mut harm = self.harm.lock().expect("no panic holds it");
        let class = match &mut *harm {
            Harm::Locked(end) if deletes && name.ends_with(end.as_str()) => Class::Locked,
            Harm::Gone(0) => Class::Forbidden,
            Harm::Gone(left) => {
                *left -= 1;
                return then;
            }
            Harm::Full if !deletes => Class::Full,
            Harm::Locked(_) | Harm::Full | Harm::Loses(..) => return then,
        };
        Box::pin(std::future::ready(Err(Fault::new(class, "by plan"))))
    }
}

impl Backend for Stubborn {
    fn location(&self) -> &StoreLocation {
        self.inner.location()
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a UploadToken) -> BackendFuture<'a, UploadId> {
        self.inner.begin(key, mark)
    }

    fn upload_part<'a>(
        &'a self,
        target: &'a PendingUpload,
        number: u32,
        body: Bytes,
    ) -> BackendFuture<'a, Part> {
        self.inner.upload_part(target, number, body)
    }

    fn complete<'a>(&'a self, target: &'a PendingUpload, parts: &'a [Part]) -> BackendFuture<'a, ()> {
        self.inner.complete(target, parts)
    }

    fn abort<'a>(&'a self, target: &'a PendingUpload) -> BackendFuture<'a, ()> {
        self.inner.abort(target)
    }

    fn head<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ObjectMetadata> {
        self.inner.head(key)
    }

    fn read<'a>(
        &'a self,
        key: &'a Key,
        range: ByteRange,
        etag: Option<&'a Etag>,
    ) -> BackendFuture<'a, ObjectBody> {
        self.inner.read(key, range, etag)
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> BackendFuture<'a, Page<ListedObject>> {
        if let Harm::Loses(listings, names) = &mut *self.harm.lock().expect("no panic holds it") {
            *listings += 1;
            if *listings == 2 {
                for name in names.drain(..) {
                    std::fs::remove_file(self.folder.join(name)).expect("deleted");
                }
            }
        }
        self.inner.list(prefix, page)
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ()> {
        self.change(key.as_str(), true, self.inner.delete(key))
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> BackendFuture<'a, ()> {
        self.change(key.as_str(), false, self.inner.create(key, body))
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BackendFuture<'a, Page<UnfinishedUpload>> {
        self.inner.list_uploads(prefix, page)
    }
}

fn stubborn(bench: &Bench, harm: Harm) -> Store {
    let port = Stubborn {
        inner: Local::new(bench.folder.0.clone()).expect("a directory"),
        folder: bench.folder.0.clone(),
        harm: Mutex::new(harm),
    };
    Store::new(Arc::new(port), policy())
}

fn periodic(owner: &str, run: &str) -> JobOrder {
    order(owner, run, |task| task.naming = Naming::Periodic)
}

async fn made(bench: &Bench, owner: &str, runs: &[&str]) -> Vec<String> {
    let members = Fake::good();
    let mut made = Vec::new();
    for run in runs {
        let manifest = bench.run(&members, &periodic(owner, run)).await.expect("stored");
        made.push(manifest.object);
    }
    made
}

/// Keeps the newest of one EtcdBackup.
async fn pruned(store: &Store, owner: &str) -> (u64, Vec<(String, String)>) {
    let keep = Keep {
        newest: Some(1),
        ..Keep::default()
    };
    let order = told(&periodic(owner, "prune"), Task::Erase);
    told_of(prune::prune(store, &order, &keep).await.expect("done"))
}

fn told_of(outcome: JobOutcome) -> (u64, Vec<(String, String)>) {
    let JobOutcome::Pruned { deleted, skipped, .. } = outcome else {
        panic!("{outcome:?}");
    };
    let skipped = skipped.into_iter().map(|skipped| (skipped.object, skipped.why));
    (deleted, skipped.collect())
}

#[tokio::test]
async fn only_what_is_not_kept_goes_and_only_if_it_is_ours() {
    let bench = Bench::new();
    let own = made(&bench, "u", &["1", "2", "3"]).await;
    let others = made(&bench, "v", &["4", "5"]).await;
    assert_eq!(pruned(&bench.store, "u").await, (2, Vec::new()));
    let left = bench.names();
    assert_eq!(left.len(), 6, "{left:?}");
    for kept in [&own[2], &others[0], &others[1]] {
        assert!(left.contains(kept), "{left:?}");
    }
    assert_eq!(pruned(&bench.store, "u").await, (0, Vec::new()));
}

#[tokio::test]
async fn what_the_second_listing_keeps_is_not_deleted() {
    let bench = Bench::new();
    let own = made(&bench, "u", &["1", "2", "3"]).await;
    let newest = ["", ".manifest.json"].map(|end| format!("{}{end}", own[2]));
    let store = stubborn(&bench, Harm::Loses(0, newest.to_vec()));
    assert_eq!(pruned(&store, "u").await, (1, Vec::new()));
    let next = ["", ".manifest.json"].map(|end| format!("{}{end}", own[1]));
    assert_eq!(bench.names(), next);
}

#[tokio::test]
async fn nothing_goes_without_a_bound_or_in_a_time_zone_that_is_unknown() {
    let bench = Bench::new();
    made(&bench, "u", &["1", "2"]).await;
    let order = told(&periodic("u", "prune"), Task::Erase);
    let outcome = prune::prune(&bench.store, &order, &Keep::default()).await;
    let outcome = outcome.expect("nothing to do");
    assert!(
        matches!(
            outcome,
            JobOutcome::Pruned {
                deleted: 0,
                kept: 2,
                ..
            }
        ),
        "{outcome:?}"
    );
    let strange = Keep {
        daily: 1,
        zone: Some("Mars/Base".to_owned()),
        ..Keep::default()
    };
    let failure = prune::prune(&bench.store, &order, &strange)
        .await
        .expect_err("refused");
    assert_eq!(failure.reason, "BadOrder", "{failure}");
    assert_eq!(bench.names().len(), 4);
}

#[tokio::test]
async fn a_backup_without_its_object_is_not_the_newest_good_one() {
    let bench = Bench::new();
    let own = made(&bench, "u", &["1", "2", "3"]).await;
    std::fs::remove_file(bench.folder.0.join(&own[2])).expect("deleted");
    assert_eq!(pruned(&bench.store, "u").await.0, 1);
    let left = bench.names();
    assert!(left.contains(&own[1]) && !left.contains(&own[0]), "{left:?}");
}

#[tokio::test]
async fn an_object_without_a_manifest_is_nobodys_to_delete() {
    let bench = Bench::new();
    let name = "etcd/orders_v3_2019-12-15-15:57:59";
    let key = Key::new(name).expect("a key");
    let body = Bytes::from_static(b"of the older operator");
    bench.store.create(&key, body).await.expect("written");
    assert_eq!(pruned(&bench.store, "u").await.0, 0);
    let order = told(&periodic("u", "erase"), Task::Erase);
    prune::erase(&bench.store, &order).await.expect("done");
    assert_eq!(bench.names(), [name]);
}

#[tokio::test]
async fn erasing_takes_all_of_one_etcd_backup_and_nothing_of_another() {
    let bench = Bench::new();
    made(&bench, "u", &["1", "2", "3"]).await;
    let others = made(&bench, "v", &["4"]).await;
    let order = told(&periodic("u", "erase"), Task::Erase);
    let outcome = prune::erase(&bench.store, &order).await.expect("done");
    assert_eq!(told_of(outcome), (3, Vec::new()));
    let left = bench.names();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&others[0]));
}

#[tokio::test]
async fn a_locked_backup_is_told_and_still_counts() {
    for locked in [".manifest.json", ""] {
        let bench = Bench::new();
        let own = made(&bench, "u", &["1", "2", "3"]).await;
        let store = stubborn(&bench, Harm::Locked(format!("{}{locked}", own[0])));
        let (deleted, skipped) = pruned(&store, "u").await;
        assert_eq!(deleted, 1, "the other one goes all the same");
        assert_eq!(skipped, [(own[0].clone(), "Locked".to_owned())]);
        let manifest = catalog::read_manifest(&bench.store, &own[0]).await.expect("read");
        assert!(manifest.is_some(), "{locked}");
        assert_eq!(bench.names().len(), 4, "{:?}", bench.names());
    }
}

#[tokio::test]
async fn a_deletion_cut_off_anywhere_leaves_no_ghost_and_is_finished_by_the_next() {
    for cut in 0..6 {
        let bench = Bench::new();
        let own = made(&bench, "u", &["1", "2"]).await;
        let order = told(&periodic("u", "prune"), Task::Erase);
        let keep = Keep {
            newest: Some(1),
            ..Keep::default()
        };
        let store = stubborn(&bench, Harm::Gone(cut));
        let _ = prune::prune(&store, &order, &keep).await;
        let names = bench.names();
        let has = |suffix: &str| names.contains(&format!("{}{suffix}", own[0]));
        let (object, manifest, claim) = (has(""), has(".manifest.json"), has(".claim.json"));
        assert!(object || !manifest, "cut {cut}: a ghost: {names:?}");
        assert!(manifest || claim || !object, "cut {cut}: nobody's: {names:?}");
        assert_eq!(pruned(&bench.store, "u").await.1, [], "cut {cut}");
        let kept = [own[1].clone(), format!("{}.manifest.json", own[1])];
        assert_eq!(bench.names(), kept, "cut {cut}");
    }
}

#[tokio::test]
async fn a_list_tells_own_backups_counts_others_and_shows_no_ghosts() {
    let bench = Bench::new();
    let mut own = made(&bench, "u", &["1", "2", "3"]).await;
    made(&bench, "v", &["4"]).await;
    std::fs::remove_file(bench.folder.0.join(&own[1])).expect("deleted");
    own.remove(1);
    own.sort();
    let order = told(&periodic("u", "list"), Task::List { after: None });
    let listed = async |after: Option<&str>| {
        let outcome = list::list(&bench.store, &order, after).await.expect("a list");
        let JobOutcome::Listed {
            backups,
            others,
            next,
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!(next, None);
        let names: Vec<String> = backups.into_iter().map(|listed| listed.object).collect();
        (names, others)
    };
    assert_eq!(listed(None).await, (own.clone(), 1));
    assert_eq!(listed(Some(&own[0])).await.0, own[1..]);
}

#[tokio::test]
async fn a_document_that_nobody_can_read_stops_nothing_at_its_path() {
    let bench = Bench::new();
    let own = made(&bench, "u", &["1", "2"]).await;
    let strange = |second: u8, end: &str| {
        let name = format!("etcd/orders_v1_2026-01-01-00:00:0{second}{end}");
        bench.folder.0.join(name)
    };
    for end in [".manifest.json", ".claim.json"] {
        let large = std::fs::File::create(strange(1, end)).expect("created");
        large.set_len(33 << 20).expect("it has holes");
        std::fs::create_dir(strange(2, end)).expect("created");
        std::os::unix::fs::symlink("/dev/zero", strange(3, end)).expect("created");
    }
    let more = made(&bench, "u", &["3"]).await;
    let order = told(&periodic("u", "list"), Task::List { after: None });
    let listed = list::list(&bench.store, &order, None).await.expect("a list");
    assert!(
        matches!(&listed, JobOutcome::Listed { backups, .. } if backups.len() == 3),
        "{listed:?}"
    );
    assert_eq!(pruned(&bench.store, "u").await, (2, Vec::new()));
    let left = bench.names();
    assert!(left.contains(&more[0]) && !left.contains(&own[0]), "{left:?}");
    for second in [1, 2, 3] {
        let manifest = strange(second, ".manifest.json");
        assert!(manifest.symlink_metadata().is_ok(), "left alone");
    }
}

#[tokio::test]
async fn a_full_volume_can_be_freed() {
    let bench = Bench::new();
    let own = made(&bench, "u", &["1", "2"]).await;
    let store = stubborn(&bench, Harm::Full);
    assert_eq!(pruned(&store, "u").await, (1, Vec::new()));
    assert_eq!(bench.names(), [own[1].clone(), names::manifest_name(&own[1])]);
    let order = told(&periodic("u", "erase"), Task::Erase);
    let outcome = prune::erase(&store, &order).await.expect("done");
    assert_eq!(told_of(outcome), (1, Vec::new()));
    assert_eq!(bench.names(), [""; 0]);
}

#[tokio::test]
async fn people_see_what_is_there_and_what_cannot_be_opened() {
    let bench = Bench::new();
    let keys = crate::support::Folder::new();
    std::fs::write(keys.0.join("2026"), [7; 32]).expect("a key");
    let members = Fake::good();
    let sealed = order("u", "1", |task| {
        task.naming = Naming::Periodic;
        task.keys = Some(keys.text());
    });
    bench.run(&members, &sealed).await.expect("stored");
    made(&bench, "u", &["2"]).await;
    let bare = Key::new("etcd/orders-old").expect("a key");
    bench
        .store
        .create(&bare, Bytes::from_static(b"x"))
        .await
        .expect("written");
    let listing = list::list_prefix(&bench.store, "etcd/", |id| id == "2025")
        .await
        .expect("a list");
    let text = listing.to_string();
    assert_eq!(listing.backups.len(), 2);
    assert_eq!(text.matches("key missing").count(), 1, "{text}");
    assert!(
        text.contains("no manifest") && text.contains("etcd/orders-old"),
        "{text}"
    );
    let broken = made(&bench, "u", &["3", "4"]).await;
    let write = |name: &str, bytes: &[u8]| std::fs::write(bench.folder.0.join(name), bytes).expect("written");
    write(&names::manifest_name(&broken[0]), b"{");
    write(&broken[1], b"half");
    write("etcd/\u{1b}[2Jred", b"x");
    let shown = list::list_prefix(&bench.store, "etcd/", |_| true)
        .await
        .expect("a list")
        .to_string();
    assert!(
        shown.contains(&format!(
            "manifest unreadable or of another object: {}",
            broken[0]
        )),
        "{shown}"
    );
    assert!(
        shown.contains("wrong size") && shown.contains("\\u{1b}[2Jred"),
        "{shown}"
    );
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let nothing = list::list_prefix(&bench.store, "other/", |_| true)
        .await
        .expect("a list");
    assert!(nothing.to_string().contains("No backups found"), "{nothing}");
    let opened = list::list_prefix(&bench.store, "etcd/", |id| id == "2026").await;
    assert!(opened.expect("a list").to_string().contains("encrypted"));
}
