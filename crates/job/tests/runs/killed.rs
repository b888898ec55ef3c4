//! Processes that die between any two requests to the store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use etcd_operator_api::contract::{JobOrder, Manifest, Naming, Task};
use etcd_operator_job::Failure;
use etcd_operator_job::backup::Run;
use etcd_operator_job::budget::{BUFFERS, Budget};
use etcd_operator_job::catalog::{self, NameFilter};
use etcd_operator_job::names::BY_HAND;
use etcd_operator_job::text::hex;
use etcd_operator_store::backend::{
    Backend, BackendFuture, ByteRange, Etag, ListedObject, ObjectBody, ObjectMetadata, Page, Part,
    PendingUpload, StoreLocation, UnfinishedUpload, UploadId, UploadToken,
};
use etcd_operator_store::{Key, Store};
use futures::future;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, Fake, Manner, long_snapshot, order, policy};

/// A port whose process dies at the request of this number, which is not carried out, and neither is any after it.
#[derive(Debug)]
struct Mortal {
    /// The file of an object that the store puts together wrongly.
    spoiled: Option<PathBuf>,
    inner: Arc<dyn Backend>,
    last: usize,
    asked: AtomicUsize,
    dead: Notify,
}

impl Mortal {
    fn turn<'a, T: Send + 'a>(&'a self, answer: BackendFuture<'a, T>) -> BackendFuture<'a, T> {
        if self.asked.fetch_add(1, Ordering::SeqCst) < self.last {
            return answer;
        }
        self.dead.notify_one();
        Box::pin(future::pending())
    }
}

impl Backend for Mortal {
    fn location(&self) -> &StoreLocation {
        self.inner.location()
    }

    fn begin<'a>(&'a self, key: &'a Key, mark: &'a UploadToken) -> BackendFuture<'a, UploadId> {
        self.turn(self.inner.begin(key, mark))
    }

    fn upload_part<'a>(
        &'a self,
        target: &'a PendingUpload,
        number: u32,
        body: Bytes,
    ) -> BackendFuture<'a, Part> {
        self.turn(self.inner.upload_part(target, number, body))
    }

    fn complete<'a>(&'a self, target: &'a PendingUpload, parts: &'a [Part]) -> BackendFuture<'a, ()> {
        let completed = self.turn(self.inner.complete(target, parts));
        Box::pin(async move {
            completed.await?;
            if let Some(file) = self
                .spoiled
                .as_ref()
                .filter(|file| file.ends_with(target.key.as_str()))
            {
                let mut bytes = std::fs::read(file).expect("put together");
                bytes[4096] ^= 1;
                std::fs::write(file, bytes).expect("written");
            }
            Ok(())
        })
    }

    fn abort<'a>(&'a self, target: &'a PendingUpload) -> BackendFuture<'a, ()> {
        self.turn(self.inner.abort(target))
    }

    fn head<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ObjectMetadata> {
        self.turn(self.inner.head(key))
    }

    fn read<'a>(
        &'a self,
        key: &'a Key,
        range: ByteRange,
        etag: Option<&'a Etag>,
    ) -> BackendFuture<'a, ObjectBody> {
        self.turn(self.inner.read(key, range, etag))
    }

    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> BackendFuture<'a, Page<ListedObject>> {
        self.turn(self.inner.list(prefix, page))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ()> {
        self.turn(self.inner.delete(key))
    }

    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> BackendFuture<'a, ()> {
        self.turn(self.inner.create(key, body))
    }

    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BackendFuture<'a, Page<UnfinishedUpload>> {
        self.turn(self.inner.list_uploads(prefix, page))
    }
}

/// The objects that count: whose manifest tells their every byte.
async fn counting(bench: &Bench) -> Vec<String> {
    let found = catalog::read(&bench.store, NameFilter::Path("etcd/orders")).await;
    let mut counting = Vec::new();
    for object in found.expect("read").keys() {
        let manifest = catalog::read_manifest(&bench.store, object).await.expect("read");
        let bytes = std::fs::read(bench.folder.0.join(object)).unwrap_or_default();
        let sum = hex(&Sha256::digest(&bytes));
        if manifest.is_some_and(|manifest| manifest.object_sha256 == sum) {
            counting.push(object.clone());
        }
    }
    counting
}

/// Runs an order in a process that dies at this request. Whether it came to its end.
async fn lives(bench: &Bench, members: &Fake, order: &JobOrder, last: usize) -> bool {
    let done = end(bench, members, order, last, None).await;
    done.is_some_and(|done| done.map(|_| true).expect("stored"))
}

/// How a run ends in such a process, if it comes to its end.
async fn end(
    bench: &Bench,
    members: &Fake,
    order: &JobOrder,
    last: usize,
    spoiled: Option<PathBuf>,
) -> Option<Result<Manifest, Failure>> {
    let port = Arc::new(Mortal {
        spoiled,
        inner: Arc::clone(&bench.port) as Arc<dyn Backend>,
        last,
        asked: AtomicUsize::new(0),
        dead: Notify::new(),
    });
    let Task::Backup(task) = &order.task else {
        panic!("{order:?}");
    };
    // Nothing of a dead process is waited for.
    let patient = etcd_operator_store::Policy::default();
    let run = Run {
        order,
        task,
        store: Store::new(Arc::clone(&port) as Arc<_>, patient),
        members,
        scratch: bench.scratch.0.clone(),
        tools: bench.tools.clone(),
        budget: Budget::new(BUFFERS),
        stop: CancellationToken::new(),
    };
    tokio::select! {
        done = run.backup() => Some(done),
        () = port.dead.notified() => None,
    }
}

/// A run by hand that is told to replace what is there.
fn by_hand(run: &str) -> JobOrder {
    order(BY_HAND, run, |task| {
        task.naming = Naming::OneShot;
        task.allow_others = true;
    })
}

#[tokio::test]
async fn a_copy_that_the_store_puts_together_wrongly_counts_for_nothing_and_the_new_backup_stays_where_it_is()
{
    let bench = Bench::with(policy());
    bench.run(&Fake::good(), &by_hand("1")).await.expect("stored");
    let newer = Fake::of(&[Manner::Good], long_snapshot(1_500_000));
    let place = bench.folder.0.join("etcd/orders");
    let ended = end(&bench, &newer, &by_hand("2"), usize::MAX, Some(place)).await;
    let failure = ended.expect("it ends").expect_err("the copy is another");
    assert_eq!(failure.reason, "VerificationFailed", "{failure}");
    let counts = counting(&bench).await;
    assert_eq!(counts.len(), 1, "{:?}", bench.names());
    assert!(failure.message.contains(&counts[0]), "{failure}");
    let manifest = catalog::read_manifest(&bench.store, "etcd/orders").await;
    assert_eq!(manifest.expect("read"), None);
}

#[tokio::test]
async fn wherever_who_replaces_a_backup_by_hand_is_killed_the_old_one_counts_or_the_new_one() {
    let mut deaths = 0;
    loop {
        let bench = Bench::with(policy());
        let first = by_hand("1");
        bench.run(&Fake::good(), &first).await.expect("stored");
        let old = std::fs::read(bench.folder.0.join("etcd/orders")).expect("there");
        let newer = Fake::of(&[Manner::Good], long_snapshot(1_500_000));
        let has_ended = lives(&bench, &newer, &by_hand("2"), deaths).await;
        let counts = counting(&bench).await;
        assert!(!counts.is_empty(), "killed at {deaths}: {:?}", bench.names());
        if has_ended {
            assert_eq!(bench.names(), ["etcd/orders", "etcd/orders.manifest.json"]);
            let new = std::fs::read(bench.folder.0.join("etcd/orders")).expect("there");
            assert_ne!(old, new);
            break;
        }
        deaths += 1;
        assert!(deaths < 200, "it never ends");
    }
    assert!(deaths > 20, "only {deaths} requests to die at");
}
