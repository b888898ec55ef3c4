//! Every harm at every moment of an upload, on all five stores: it ends complete or aborted and never in between, the
//! object is the new one or the old one, and nothing is written twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_operator_store::connect::connect;
use etcd_operator_store::platform::Platform;
use etcd_operator_store::port::Port;
use etcd_operator_store::testing::{Faulty, Harm, Phase, Times};
use etcd_operator_store::{Class, Error, Key, Policy, Remains, Store, Stored};

use crate::stores::{Directory, PASSWORD, config, policy, secret_of};
use etcd_operator_store::testing::fake::{Dialect, Fake};

const PART: u64 = 1000;
const PARTS: u32 = 3;

/// A store that can be harmed.
trait Harmed {
    fn plan(&self, phase: Phase, harm: Harm, times: Times);
    fn calm(&self);
    fn happened(&self) -> usize;
    /// How often an upload was made an object; unknown where nobody counts.
    fn completions(&self) -> Option<usize>;
}

impl Harmed for Fake {
    fn plan(&self, phase: Phase, harm: Harm, times: Times) {
        Fake::plan(self, phase, harm, times);
    }

    fn calm(&self) {
        self.state().calm();
    }

    fn happened(&self) -> usize {
        self.state().happened()
    }

    fn completions(&self) -> Option<usize> {
        Some(self.state().completions)
    }
}

impl Harmed for Faulty<etcd_operator_store::local::Local> {
    fn plan(&self, phase: Phase, harm: Harm, times: Times) {
        Faulty::plan(self, phase, harm, times);
    }

    fn calm(&self) {
        Faulty::calm(self);
    }

    fn happened(&self) -> usize {
        Faulty::happened(self)
    }

    fn completions(&self) -> Option<usize> {
        None
    }
}

async fn attempt(store: &Store, key: &Key, content: u8) -> Result<Stored, Error> {
    let upload = store.begin(key, PART).await?;
    let mut parts = Vec::new();
    for number in 1..=PARTS {
        let size = if number == PARTS { 10 } else { 1000 };
        match upload.part(number, Bytes::from(vec![content; size])).await {
            Ok(part) => parts.push(part),
            Err(error) => {
                upload.abort().await.expect("aborting works");
                return Err(error.with_remains(Remains::Aborted));
            }
        }
    }
    upload.complete(parts).await
}

fn expected(harm: Harm) -> Class {
    match harm {
        Harm::Internal | Harm::Broken | Harm::LostAnswer => Class::Transient,
        Harm::Throttled => Class::Throttled,
        Harm::Slow => Class::TimedOut,
        Harm::Expired => Class::Credentials,
        Harm::WrongRegion => Class::WrongRegion,
        Harm::Forbidden => Class::Forbidden,
        Harm::NoBucket => Class::NoBucket,
        Harm::Full => Class::Full,
    }
}

/// One cell of the table, as a word for people.
async fn cell(
    store: &Store,
    harmed: &dyn Harmed,
    phase: Phase,
    harm: Harm,
    times: Times,
    is_abs: bool,
) -> String {
    let what = format!("{phase:?} {harm:?} {times:?}");
    let key =
        Key::new(format!("etcd/{phase:?}-{harm:?}-{times:?}").replace(['(', ')'], "-")).expect("a name");
    attempt(store, &key, b'o').await.expect("the old object");
    let before = harmed.completions();
    harmed.plan(phase, harm, times);
    let outcome = attempt(store, &key, b'n').await;
    assert!(harmed.happened() > 0, "{what}: it did happen");
    harmed.calm();

    let there = store.read_small(&key, 100_000).await.expect("an object is there");
    assert_eq!(there.len(), 2010, "{what}: a whole one");
    let is_new = there.iter().all(|byte| *byte == b'n');
    assert!(
        is_new || there.iter().all(|byte| *byte == b'o'),
        "{what}: not a mixture"
    );
    let left = store
        .sweep(key.as_str(), far(), |_| true)
        .await
        .expect("swept")
        .aborted;
    assert_eq!(left, Vec::<String>::new(), "{what}: no upload is left");
    if let (Some(before), Some(after)) = (before, harmed.completions()) {
        assert!(after <= before + 1, "{what}: completed once at most");
    }

    // Blocks need no beginning; what fails there is only a look that may fail.
    let is_look = phase == Phase::AfterComplete || (is_abs && phase == Phase::Begin);
    match &outcome {
        Ok(_) => {
            assert!(is_new, "{what}: success means the new object");
            let helps = times == Times::Once && harm.passes();
            let settled = harm == Harm::LostAnswer && phase == Phase::Complete;
            assert!(helps || settled || is_look, "{what}: must not succeed");
            "complete".to_owned()
        }
        Err(error) => {
            let text = format!("{error} {error:?}");
            assert!(
                !text.contains(PASSWORD) && !text.contains("aHVudGVy"),
                "{what}: {text}"
            );
            assert!(
                times == Times::Always || !harm.passes(),
                "{what}: it was over: {error}"
            );
            if phase == Phase::AfterComplete {
                assert!(is_new, "{what}: it was complete already");
            } else {
                assert!(!is_new, "{what}: failure means the old object");
                assert!(is_look || error.class == expected(harm), "{what}: {error:?}");
                assert_ne!(error.remains, Some(Remains::Unknown), "{what}: {error}");
            }
            format!("{:?}", error.class)
        }
    }
}

fn far() -> jiff::Timestamp {
    jiff::Timestamp::from_second(4_102_444_800).expect("a time")
}

/// The same store twice: soon out of patience, for what never answers; and patient, on a machine that also compiles.
struct Stores {
    quick: Store,
    patient: Store,
}

/// The committed table: who reads it reads what happens.
const TABLE: &str = include_str!("../../../../docs/proof/stores.md");

async fn table(name: &str, stores: &Stores, harmed: &dyn Harmed, without: &[Harm], is_abs: bool) {
    let (mut cells, mut strange) = (0, String::new());
    for harm in Harm::ALL.into_iter().filter(|harm| !without.contains(harm)) {
        let store = if harm == Harm::Slow {
            &stores.quick
        } else {
            &stores.patient
        };
        for times in [Times::Once, Times::Always] {
            let mut row = Vec::new();
            for phase in Phase::all(PARTS) {
                let word = cell(store, harmed, phase, harm, times, is_abs).await;
                row.push(word);
                cells += 1;
            }
            let line = format!("| {name} | {harm:?} | {times:?} | {} |\n", row.join(" | "));
            if !TABLE.contains(&line) {
                strange.push_str(&line);
            }
        }
    }
    assert!(cells >= 90, "{cells} cells");
    assert_eq!(strange, "", "docs/proof/stores.md has other lines");
}

fn quick() -> Policy {
    Policy {
        request: Duration::from_millis(700),
        part: Duration::from_millis(700),
        complete: Duration::from_millis(700),
        ..policy()
    }
}

async fn harm(dialect: Dialect, name: &str, without: &[Harm]) {
    let fake = Fake::start(dialect, None).await;
    let secret = secret_of(dialect);
    let config = config(dialect, &fake.endpoint, None);
    let platform = Platform::default();
    let connected = async |policy| {
        connect(&config, Some(&secret), &platform, policy)
            .await
            .expect("a store")
    };
    let stores = Stores {
        quick: connected(quick()).await,
        patient: connected(policy()).await,
    };
    table(name, &stores, &fake, without, dialect == Dialect::Abs).await;
}

#[tokio::test]
async fn s3_ends_complete_or_aborted_whatever_happens() {
    harm(Dialect::S3, "s3", &[]).await;
}

#[tokio::test]
async fn oss_ends_complete_or_aborted_whatever_happens() {
    harm(Dialect::Oss, "oss", &[]).await;
}

#[tokio::test]
async fn gcs_ends_complete_or_aborted_whatever_happens() {
    // Buckets of Google have a region and are reached from everywhere.
    harm(Dialect::Gcs, "gcs", &[Harm::WrongRegion]).await;
}

#[tokio::test]
async fn abs_ends_complete_or_aborted_whatever_happens() {
    harm(Dialect::Abs, "abs", &[Harm::WrongRegion]).await;
}

#[tokio::test]
async fn a_directory_ends_complete_or_aborted_whatever_happens() {
    let directory = Directory::new("harmed");
    let port = Arc::new(Faulty::new(directory.port()));
    let with = |policy| Store::new(Arc::clone(&port) as Arc<dyn Port>, policy);
    let stores = Stores {
        quick: with(quick()),
        patient: with(policy()),
    };
    table("local", &stores, port.as_ref(), &[], false).await;
}
