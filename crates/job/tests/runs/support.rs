//! Members that do as they are told, and a store in a directory, behind a port that fails when it is told to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use etcd_operator_api::contract::{BackupTask, JobOrder, Limits, Manifest, Naming, Source, StoreOrder, Task};
use etcd_operator_api::store::StorageType;
use etcd_operator_etcd::error::{Cause, Error};
use etcd_operator_etcd::id::{ClusterId, MemberId, Revision};
use etcd_operator_etcd::tool::Tools;
use etcd_operator_job::backup::Run;
use etcd_operator_job::budget::{BUFFERS, Budget};
use etcd_operator_job::member_choice::{Candidate, Role};
use etcd_operator_job::members::{MemberFuture, Members, SnapshotStream, Survey};
use etcd_operator_job::{Failure, clock};
use etcd_operator_store::local::Local;
use etcd_operator_store::testing::FaultInjector;
use etcd_operator_store::{Policy, Store};
use futures::StreamExt as _;
use futures::stream;
use jiff::SignedDuration;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

/// What etcd sends at once.
pub const PIECE: usize = 32 << 10;
/// The revision of the snapshot.
pub const REVISION: i64 = 11;

/// A real snapshot of 3.6.
pub fn snapshot() -> Vec<u8> {
    corpus("3.6-full")
}

/// Another one, with other keys.
pub fn other_snapshot() -> Vec<u8> {
    corpus("3.6-tombstone")
}

fn corpus(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../snapshot/corpus/{name}.db.zst"));
    let packed = std::fs::read(path).expect("the corpus is there");
    zstd::decode_all(packed.as_slice()).expect("it unpacks")
}

/// The same with so many bytes of pages behind it that are in no use.
pub fn long_snapshot(bytes: usize) -> Vec<u8> {
    let mut database = snapshot();
    database.truncate(database.len() - 32);
    database.resize(bytes / 4096 * 4096, 0);
    let hash = Sha256::digest(&database);
    database.extend(hash);
    database
}

/// What a member does when it is asked for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It sends it.
    Good,
    /// It does not answer.
    Dead,
    /// The connection breaks in the middle.
    Breaks,
    /// The stream ends in the middle as if that were its end.
    Ends,
    /// A bit is another one.
    Flips,
    /// It never sends a second piece.
    Stalls,
}

#[derive(Debug)]
pub struct Fake {
    pub manners: Vec<Manner>,
    pub snapshot: Bytes,
    pub cluster: u64,
    /// How many snapshots were begun.
    pub begun: AtomicUsize,
    /// How many bytes were taken of them.
    pub taken: Arc<AtomicU64>,
    /// How large the databases are said to be.
    pub size: AtomicU64,
}

impl Fake {
    pub fn of(manners: &[Manner], snapshot: Vec<u8>) -> Self {
        Self {
            manners: manners.to_vec(),
            size: AtomicU64::new(snapshot.len() as u64),
            snapshot: snapshot.into(),
            cluster: 7,
            begun: AtomicUsize::new(0),
            taken: Arc::default(),
        }
    }

    pub fn good() -> Self {
        Self::of(&[Manner::Good], snapshot())
    }

    fn error(of: &Candidate, cause: Cause) -> Error {
        Error {
            endpoint: of.url.clone(),
            call: "Snapshot",
            cause,
        }
    }
}

impl Members for Fake {
    fn survey(&self) -> MemberFuture<'_, Survey> {
        let found = (1..).zip(&self.manners).map(|(id, _)| Candidate {
            url: format!("http://c-{id}:2379").parse().expect("a URL"),
            cluster: ClusterId::new(self.cluster).expect("an ID"),
            member: MemberId::new(id).expect("an ID"),
            name: Some(format!("c-{id}")),
            version: "3.6.16".to_owned(),
            role: if id == 1 { Role::Follower } else { Role::Leader },
            revision: Revision(REVISION - 1),
            applied: 5,
            db_size: self.snapshot.len() as u64,
            corrupt: BTreeSet::new(),
        });
        let survey = Survey {
            found: found.collect(),
            errors: Vec::new(),
        };
        Box::pin(std::future::ready(survey))
    }

    fn snapshot<'a>(&'a self, of: &'a Candidate) -> MemberFuture<'a, Result<SnapshotStream, Error>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let number = usize::try_from(of.member.get()).expect("small");
        let manner = self.manners[number - 1];
        if manner == Manner::Dead {
            let error = Self::error(of, Cause::Unreachable("refused".to_owned()));
            return Box::pin(std::future::ready(Err(error)));
        }
        let mut bytes = self.snapshot.to_vec();
        let half = bytes.len() / 2;
        match manner {
            Manner::Flips => bytes[half] ^= 1,
            Manner::Breaks | Manner::Ends => bytes.truncate(half),
            _ => {}
        }
        let bytes = Bytes::from(bytes);
        let pieces: Vec<Bytes> = (0..bytes.len())
            .step_by(PIECE)
            .map(|from| bytes.slice(from..(from + PIECE).min(bytes.len())))
            .collect();
        let taken = Arc::clone(&self.taken);
        let pieces = stream::iter(pieces).map(move |piece| {
            taken.fetch_add(piece.len() as u64, Ordering::SeqCst);
            Ok(piece)
        });
        let error = Self::error(of, Cause::Lost("reset".to_owned()));
        let pieces: SnapshotStream = match manner {
            Manner::Breaks => pieces.chain(stream::iter([Err(error)])).boxed(),
            Manner::Stalls => pieces.take(1).chain(stream::pending()).boxed(),
            _ => pieces.boxed(),
        };
        Box::pin(std::future::ready(Ok(pieces)))
    }

    fn database_size<'a>(&'a self, _: &'a Candidate) -> MemberFuture<'a, Option<u64>> {
        Box::pin(std::future::ready(Some(self.size.load(Ordering::SeqCst))))
    }
}

/// A directory that is gone with the test.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("job-runs-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store, and the access to break it.
#[derive(Debug)]
pub struct Bench {
    pub folder: Folder,
    pub port: Arc<FaultInjector<Local>>,
    pub store: Store,
    pub scratch: Folder,
    pub tools: Tools,
}

/// Quick to try again, and patient: a busy disk takes its time to sync.
pub fn policy() -> Policy {
    Policy {
        max_attempts: 3,
        initial_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(5),
        request_timeout: Duration::from_secs(10),
        part_timeout: Duration::from_secs(10),
        complete_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
    }
}

impl Bench {
    pub fn new() -> Self {
        Self::with(policy())
    }

    pub fn with(policy: Policy) -> Self {
        let folder = Folder::new();
        let local = Local::new(folder.0.clone()).expect("a directory");
        let port = Arc::new(FaultInjector::new(local));
        Self {
            store: Store::new(Arc::clone(&port) as Arc<_>, policy),
            folder,
            port,
            scratch: Folder::new(),
            tools: Tools::at("/no-such-directory"),
        }
    }

    /// Every name there is, with what is hidden.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![self.folder.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&self.folder.0).expect("within");
                    names.push(name.display().to_string());
                }
            }
        }
        names.sort();
        names
    }

    pub async fn run(&self, members: &Fake, order: &JobOrder) -> Result<Manifest, Failure> {
        self.run_with(members, order, Budget::new(BUFFERS)).await
    }

    pub async fn run_with(
        &self,
        members: &Fake,
        order: &JobOrder,
        budget: Budget,
    ) -> Result<Manifest, Failure> {
        self.run_until(members, order, budget, CancellationToken::new())
            .await
    }

    pub async fn run_until(
        &self,
        members: &Fake,
        order: &JobOrder,
        budget: Budget,
        stop: CancellationToken,
    ) -> Result<Manifest, Failure> {
        let Task::Backup(task) = &order.task else {
            panic!("{:?}", order.task);
        };
        let run = Run {
            order,
            task,
            store: self.store.clone(),
            members,
            scratch: self.scratch.0.clone(),
            tools: self.tools.clone(),
            budget,
            stop,
        };
        run.backup().await
    }
}

/// An order of the EtcdBackup `owner` for this run, as the closure changes it.
pub fn order(owner: &str, run: &str, change: impl FnOnce(&mut BackupTask)) -> JobOrder {
    let mut task = BackupTask {
        source: Source::default(),
        cluster_id: None,
        incarnation: Some(1),
        naming: Naming::OneShot,
        compression: etcd_operator_api::backup::Compression::None,
        keys: None,
        verification: etcd_operator_api::backup::Verification::Checksum,
        deadline: clock::now()
            .checked_add(SignedDuration::from_mins(10))
            .expect("soon"),
        limits: Limits::default(),
        allow_others: false,
    };
    change(&mut task);
    JobOrder {
        version: 1,
        run: run.to_owned(),
        owner_uid: owner.to_owned(),
        store: StoreOrder {
            kind: StorageType::Local,
            path: "etcd/orders".to_owned(),
            ..StoreOrder::default()
        },
        task: Task::Backup(Box::new(task)),
    }
}

/// The same order for another task.
pub fn told(order: &JobOrder, task: Task) -> JobOrder {
    JobOrder {
        task,
        ..order.clone()
    }
}
