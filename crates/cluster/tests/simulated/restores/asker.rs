//! Whoever asks for restores: it has a backup in the store, writes down what is to be restored, compares what members
//! serve before clients are let in, and says how it ended. What the controller of restores does, in short.

use std::time::Duration;

use etcd_operator_api::contract::{self, ObjectFacts, RestoreIntent, RestoreSecrets, StoreOrder};
use etcd_operator_api::names::ANNOTATION_RESTORE;
use etcd_operator_testkit::etcd::Snapshot;
use etcd_operator_testkit::ledger::Promise;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{MINUTE, SECOND};

const API: &str = "etcd.database.coreos.com/v1beta2";
const KIND: &str = "EtcdRestore";
/// For how long data of before are kept.
pub const KEPT: SignedDuration = SignedDuration::from_mins(30);
/// By how much revisions are raised.
const BUMP: i64 = 1_000_000;

/// What it says until it is over.
const WAITING: &str = "Waiting";
/// How long it takes to compare.
const COMPARING: Duration = Duration::from_secs(8);
/// How long after a deletion the cluster still says that it is asked for.
const BEHIND: Duration = Duration::from_secs(40);

/// A restore that somebody asks for.
#[derive(Clone)]
pub struct Asked {
    sim: Simulation,
    name: String,
    uid: String,
    /// The claim of a volume that one pod at a time can mount, if the backup lies there.
    claim: Option<String>,
    /// What is to be restored.
    pub snapshot: Snapshot,
}

impl Asked {
    /// Backs the cluster up as it is at this moment. Nothing is asked for yet.
    pub fn of(sim: &Simulation, name: &str) -> Self {
        let process = (0..5).find_map(|number| sim.pod(&format!("c-{number}"))?.process);
        let snapshot = process.and_then(|process| sim.etcds().backup(process));
        Self::with(sim, name, snapshot.expect("a member is up"))
    }

    /// The same of a backup made before.
    pub fn with(sim: &Simulation, name: &str, snapshot: Snapshot) -> Self {
        sim.machine().store(name, snapshot.clone());
        let object = sim.fake().put_object(json!({
            "apiVersion": API, "kind": KIND, "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"etcdCluster": {"name": "c"}}, "status": {"phase": WAITING},
        }));
        Self {
            sim: sim.clone(),
            name: name.to_owned(),
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            claim: None,
            snapshot,
        }
    }

    /// The same of a backup on a volume that one pod at a time can mount.
    pub fn on_volume(self, claim: &str) -> Self {
        self.sim.fake().put_object(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": NAMESPACE},
            "spec": {
                "accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": format!("of-{claim}"),
            },
            "status": {"phase": "Bound"},
        }));
        Self {
            claim: Some(claim.to_owned()),
            ..self
        }
    }

    fn write(&self, compared_cluster: Option<String>) {
        let intent = RestoreIntent {
            version: contract::VERSION,
            uid: self.uid.clone(),
            name: self.name.clone(),
            store: StoreOrder::default(),
            secrets: RestoreSecrets {
                claim: self.claim.clone(),
                ..RestoreSecrets::default()
            },
            object: ObjectFacts {
                sha256: self.name.clone(),
                ..ObjectFacts::default()
            },
            revision: self.snapshot.revision().0,
            etcd_version: "3.6.16".to_owned(),
            digest: "of the model".to_owned(),
            revision_bump: BUMP,
            keep_previous_seconds: KEPT.as_secs().unsigned_abs(),
            compared_cluster,
            single_member: self.claim.is_some(),
        };
        let text = String::from_utf8(contract::write(&intent)).unwrap();
        self.sim.annotate("c", ANNOTATION_RESTORE, &text);
    }

    /// Asks for it, and does the asker's part from now on.
    pub fn ask(&self) {
        self.write(None);
        let this = self.clone();
        tokio::spawn(async move { this.follow().await });
    }

    /// The same once these others are over: whoever asked first comes first.
    pub fn ask_after(&self, others: Vec<Self>) {
        let this = self.clone();
        tokio::spawn(async move {
            while others.iter().any(Self::is_waiting) {
                tokio::time::sleep(SECOND).await;
            }
            if this.is_waiting() {
                this.write(None);
                this.follow().await;
            }
        });
    }

    /// Whether it is there and not over yet.
    pub fn is_waiting(&self) -> bool {
        self.outcome() == WAITING
    }

    /// Whether it is the one of this UID.
    pub fn is(&self, uid: &str) -> bool {
        self.uid == uid
    }

    /// Takes it back. Whoever looks after it hears of that later.
    pub fn withdraw(&self) {
        self.sim
            .timeline()
            .note("user", format_args!("deletes the restore {}", self.name));
        self.sim.fake().delete_object(API, KIND, NAMESPACE, &self.name);
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(BEHIND).await;
            this.forget();
        });
    }

    fn forget(&self) {
        self.sim.fake().update_object(
            "etcd.database.coreos.com/v1beta2",
            "EtcdCluster",
            NAMESPACE,
            "c",
            |cluster| {
                let annotations = cluster["metadata"]["annotations"].as_object_mut();
                let is_own = |text: &Value| text.as_str().is_some_and(|text| text.contains(&self.uid));
                if let Some(all) = annotations
                    && all.get(ANNOTATION_RESTORE).is_some_and(is_own)
                {
                    all.remove(ANNOTATION_RESTORE);
                }
            },
        );
    }

    /// etcd's ID of the cluster it has made.
    fn cluster(&self) -> Option<String> {
        self.progress()["clusterID"].as_str().map(str::to_owned)
    }

    /// What the cluster's status says of it; nothing if it says nothing of this one.
    pub fn progress(&self) -> Value {
        let progress = self
            .sim
            .look("c", |cluster| cluster["status"]["restore"].clone())
            .unwrap_or_default();
        if progress["uid"] == *self.uid {
            progress
        } else {
            Value::Null
        }
    }

    /// How far it is.
    pub fn phase(&self) -> String {
        self.progress()["phase"].as_str().unwrap_or_default().to_owned()
    }

    /// What the asker says of it: a word once it is over.
    pub fn outcome(&self) -> String {
        let object = self.sim.fake().get_object(API, KIND, NAMESPACE, &self.name);
        let phase = object.map(|object| object["status"]["phase"].clone());
        phase
            .and_then(|phase| phase.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    fn say(&self, outcome: &str) {
        self.sim
            .fake()
            .update_object(API, KIND, NAMESPACE, &self.name, |object| {
                object["status"]["phase"] = json!(outcome);
            });
    }

    async fn follow(&self) {
        let mut compared = None;
        loop {
            tokio::time::sleep(SECOND).await;
            if !self.is_waiting() {
                return;
            }
            match self.phase().as_str() {
                "Serving" if compared != self.cluster() => {
                    // Long enough for members to be ready meanwhile.
                    tokio::time::sleep(COMPARING).await;
                    if self.compares().await && self.is_waiting() {
                        compared = self.cluster();
                        self.write(compared.clone());
                    }
                }
                "Finished" => {
                    self.say("Succeeded");
                    return self.forget();
                }
                "RolledBack" => {
                    self.say("RolledBack");
                    return self.forget();
                }
                _ => {}
            }
        }
    }

    /// Whether somebody of the restored cluster answers, and serves what is in the backup.
    async fn compares(&self) -> bool {
        let own = self.progress()["clusterID"].clone();
        let served = self.sim.ledger().served(NAMESPACE, "c").await;
        let restored = served.iter().find(|(cluster, _, _)| own == cluster.to_string());
        let Some((cluster, _, keys)) = restored else {
            return false;
        };
        let found: std::collections::BTreeMap<_, _> = keys.iter().cloned().collect();
        let missing = self
            .snapshot
            .keys()
            .into_iter()
            .find(|(key, value)| found.get(key) != Some(value));
        if let Some((key, _)) = missing {
            let what = format!("{cluster} is to be compared, and lacks {key}");
            self.sim.ledger().accuse(Promise::S7, what);
        }
        true
    }

    /// Waits until it is over, and how.
    pub async fn ends(&self, outcome: &str) {
        let what = format!("the restore {} is {outcome}", self.name);
        self.sim
            .expect(&what, 30 * MINUTE, |_| self.outcome() == outcome)
            .await;
    }

    /// It is over, and so many members serve what it restored and nothing else; their old data are kept for a while.
    pub async fn served_by(&self, size: u8) {
        let sim = &self.sim;
        self.ends("Succeeded").await;
        sim.expect("the cluster is whole", 20 * MINUTE, |sim| sim.is_whole("c", size))
            .await;
        let id = super::cluster_id(sim).parse().expect("an ID");
        sim.ledger().expect_restored(NAMESPACE, "c", &self.snapshot, id);
        tokio::time::sleep(10 * SECOND).await;
        let served = sim.ledger().served(NAMESPACE, "c").await;
        let newest = sim.ledger().newest_of_others(id);
        for (cluster, revision, _) in &served {
            assert_eq!(*cluster, id);
            assert!(
                *revision > newest,
                "{revision} is not above {newest}, which was acknowledged before"
            );
        }
        assert_eq!(served.len(), usize::from(size));
        assert_eq!(sim.ledger().verify_all(NAMESPACE, "c").await, usize::from(size));
    }
}
