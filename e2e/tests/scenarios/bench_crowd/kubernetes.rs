//! What Kubernetes does about StatefulSets and Jobs where there are no controllers and no nodes: pods are created from their
//! templates, get an address, and are told what they wait for. Volumes are names, and Jobs succeed at once.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use anyhow::{Context, Result};
use etcd_operator_api::contract::{
    self, Fingerprint, JobOrder, JobOutcome, JobResult, ORDER_VARIABLE, Permit, Report, Stored, Task, Verdict,
};
use etcd_operator_api::names::{ANNOTATION_PERMIT, APP_VALUE, LABEL_APP};
use etcd_operator_runtime::clock::{Clock as _, SystemClock};
use futures::TryStreamExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, PodSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::members::{Members, Seat, VERSION};

const NODES: u16 = 30;
/// How many things are done at once.
const HANDS: usize = 16;

/// The namespace in which all of it happens.
#[derive(Clone)]
pub struct Kubernetes {
    client: Client,
    namespace: String,
    members: Arc<Members>,
}

impl Kubernetes {
    /// Creates the nodes, and does from now on what the objects ask for.
    pub async fn start(
        client: Client,
        namespace: &str,
        members: Arc<Members>,
        tasks: &mut JoinSet<Result<()>>,
    ) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        for n in 0..NODES {
            let node = json!({
                "metadata": {"name": node(n), "labels": {"kubernetes.io/hostname": node(n)}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            });
            nodes
                .create(&PostParams::default(), &serde_json::from_value(node)?)
                .await?;
        }
        let this = Self {
            client,
            namespace: namespace.to_owned(),
            members,
        };
        let (sets, pods, jobs) = (this.clone(), this.clone(), this);
        tasks.spawn(async move {
            let done = &mut HashSet::new();
            sets.follow(
                |set: StatefulSet| {
                    let is_new = done.insert((set.uid(), set.metadata.generation));
                    is_new.then(|| sets.run_set(set))
                },
                |_| None::<futures::future::Ready<_>>,
            )
            .await
        });
        tasks.spawn(async move {
            let told = &mut HashMap::new();
            pods.follow(
                |pod: Pod| {
                    let next = Stage::of(&pod)?;
                    let before = told.insert(pod.uid(), next);
                    (before != Some(next)).then(|| pods.run_pod(pod, next))
                },
                |_| None::<futures::future::Ready<_>>,
            )
            .await
        });
        tasks.spawn(async move {
            let done = &mut HashSet::new();
            jobs.follow(
                |job: Job| done.insert(job.uid()).then(|| jobs.run_job(job)),
                |job: Job| Some(jobs.delete_pod(job)),
            )
            .await
        });
        Ok(())
    }

    /// Does something about each object of a kind that comes, changes or goes.
    async fn follow<K, A, G>(
        &self,
        mut about: impl FnMut(K) -> Option<A>,
        mut gone: impl FnMut(K) -> Option<G>,
    ) -> Result<()>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
        K::DynamicType: Default,
        A: Future<Output = Result<()>>,
        G: Future<Output = Result<()>>,
    {
        let events = watcher::watcher(self.api::<K>(), watcher::Config::default());
        let work = events.map_err(anyhow::Error::from).try_filter_map(|event| {
            std::future::ready(Ok(match event {
                Event::Apply(object) | Event::InitApply(object) => {
                    about(object).map(futures::future::Either::Left)
                }
                Event::Delete(object) => gone(object).map(futures::future::Either::Right),
                Event::Init | Event::InitDone => None,
            }))
        });
        work.try_for_each_concurrent(HANDS, |work| work).await
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, object: &K) -> Result<()>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
        K::DynamicType: Default,
    {
        match self.api().create(&PostParams::default(), object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error).with_context(|| object.name_any()),
        }
    }

    async fn tell<K>(&self, name: &str, status: Value) -> Result<()>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + DeserializeOwned,
        K::DynamicType: Default,
    {
        let patch = Patch::Merge(json!({"status": status}));
        match self
            .api::<K>()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
        {
            // The object may have been deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            told => told.map(drop).with_context(|| name.to_owned()),
        }
    }

    /// Creates the pods of a StatefulSet with their claims.
    async fn run_set(&self, set: StatefulSet) -> Result<()> {
        let name = set.name_any();
        let revision = format!("{name}-1");
        let replicas = set.spec.replicas.unwrap_or(1);
        for ordinal in 0..replicas {
            let pod_name = format!("{name}-{ordinal}");
            let mut spec = set
                .spec
                .template
                .spec
                .clone()
                .context("a template without a spec")?;
            for template in set.spec.volume_claim_templates.iter().flatten() {
                let volume = template.name_any();
                let claim_name = format!("{volume}-{pod_name}");
                let mut claim = template.clone();
                claim.metadata.name = Some(claim_name.clone());
                claim.metadata.namespace = Some(self.namespace.clone());
                claim
                    .metadata
                    .labels
                    .get_or_insert_default()
                    .extend(set.spec.selector.match_labels.clone().unwrap_or_default());
                claim.spec.get_or_insert_default().volume_name = Some(format!("pv-{claim_name}"));
                claim.status = None;
                self.create(&claim).await?;
                self.tell::<PersistentVolumeClaim>(&claim_name, json!({"phase": "Bound"}))
                    .await?;
                mount(&mut spec, volume, claim_name);
            }
            spec.hostname = Some(pod_name.clone());
            spec.subdomain = set.spec.service_name.clone();
            let seat = seat(&pod_name).with_context(|| format!("{pod_name} is no member"))?;
            spec.node_name = Some(node((seat.cluster + u16::from(seat.ordinal)) % NODES));
            let mut metadata = set.spec.template.metadata.clone().unwrap_or_default();
            metadata.labels.get_or_insert_default().extend([
                ("statefulset.kubernetes.io/pod-name".to_owned(), pod_name.clone()),
                ("controller-revision-hash".to_owned(), revision.clone()),
            ]);
            let metadata = owned(&set, metadata, pod_name);
            self.create(&Pod {
                metadata,
                spec: Some(spec),
                status: None,
            })
            .await?;
        }
        let status = json!({
            "observedGeneration": set.metadata.generation, "replicas": replicas, "readyReplicas": replicas,
            "availableReplicas": replicas, "updatedReplicas": replicas, "currentReplicas": replicas,
            "currentRevision": revision, "updateRevision": revision,
        });
        self.tell::<StatefulSet>(&name, status).await
    }

    /// Brings the pod of a member to the next stage.
    async fn run_pod(&self, pod: Pod, stage: Stage) -> Result<()> {
        let seat = seat(&pod.name_any()).context("no member")?;
        let is_ready = match stage {
            Stage::Created => {
                self.members.wait(seat, report(&pod)?);
                false
            }
            Stage::Permitted => {
                let permit = &pod.annotations()[ANNOTATION_PERMIT];
                let permit: Permit = contract::read(permit.as_bytes())?;
                if !self.members.start(seat, &permit) {
                    return Ok(());
                }
                true
            }
        };
        let image = container(&pod).and_then(|etcd| etcd.image.clone());
        let now = SystemClock.now();
        let truth = if is_ready { "True" } else { "False" };
        let condition =
            |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": now});
        let status = json!({
            "phase": "Running",
            "podIP": seat.address(),
            "podIPs": [{"ip": seat.address()}],
            "conditions": [
                condition("PodScheduled", "True"), condition("Initialized", "True"),
                condition("ContainersReady", truth), condition("Ready", truth),
            ],
            "containerStatuses": [{
                "name": "etcd", "image": image, "imageID": image, "ready": is_ready, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }],
        });
        self.tell::<Pod>(&pod.name_any(), status).await
    }

    /// Lets a Job succeed.
    async fn run_job(&self, job: Job) -> Result<()> {
        let name = job.name_any();
        let template = &job.spec.as_ref().context("a Job without a spec")?.template;
        let mut spec = template.spec.clone().context("a template without a spec")?;
        let main = spec.containers.first().context("no container")?;
        let order = main
            .env
            .iter()
            .flatten()
            .find(|variable| variable.name == ORDER_VARIABLE);
        let order = order
            .and_then(|variable| variable.value.as_deref())
            .context("no order")?;
        let order: JobOrder = contract::read(order.replace("$$(", "$(").as_bytes())?;
        let result = contract::write(&JobResult {
            version: order.version,
            outcome: outcome(&order),
            run: order.run,
        });
        let container = main.name.clone();
        spec.node_name = Some(node(0));
        let mut metadata = template.metadata.clone().unwrap_or_default();
        metadata
            .labels
            .get_or_insert_default()
            .insert("job-name".to_owned(), name.clone());
        let pod = pod_name(&job);
        self.create(&Pod {
            metadata: owned(&job, metadata, pod.clone()),
            spec: Some(spec),
            status: None,
        })
        .await?;
        let now = SystemClock.now();
        let ended = json!({
            "exitCode": 0, "finishedAt": now, "startedAt": now, "message": String::from_utf8(result)?,
        });
        let status = json!({
            "phase": "Succeeded",
            "containerStatuses": [{
                "name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": ended},
            }],
        });
        self.tell::<Pod>(&pod, status).await?;
        let status = json!({
            "startTime": now, "completionTime": now, "succeeded": 1,
            "conditions": [
                {"type": "SuccessCriteriaMet", "status": "True", "lastProbeTime": now, "lastTransitionTime": now},
                {"type": "Complete", "status": "True", "lastProbeTime": now, "lastTransitionTime": now},
            ],
        });
        self.tell::<Job>(&name, status).await
    }

    /// What the garbage collector does for a Job that is gone.
    async fn delete_pod(&self, job: Job) -> Result<()> {
        let at_once = DeleteParams::default().grace_period(0);
        match self.api::<Pod>().delete(&pod_name(&job), &at_once).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Created,
    Permitted,
}

impl Stage {
    /// Nothing for a pod that is no member's.
    fn of(pod: &Pod) -> Option<Self> {
        let is_member = pod.labels().get(LABEL_APP).is_some_and(|app| app == APP_VALUE);
        let is_permitted = pod.annotations().contains_key(ANNOTATION_PERMIT);
        is_member.then_some(if is_permitted {
            Self::Permitted
        } else {
            Self::Created
        })
    }
}

fn node(number: u16) -> String {
    format!("node-{number}")
}

fn pod_name(job: &Job) -> String {
    format!("{}-pod", job.name_any())
}

/// The cluster and the ordinal in the name of a pod such as `c12-0`.
fn seat(pod: &str) -> Option<Seat> {
    let (cluster, ordinal) = pod.strip_prefix('c')?.split_once('-')?;
    Some(Seat {
        cluster: cluster.parse().ok()?,
        ordinal: ordinal.parse().ok()?,
    })
}

fn container(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::Container> {
    pod.spec
        .as_ref()?
        .containers
        .iter()
        .find(|container| container.name == "etcd")
}

fn mount(spec: &mut PodSpec, volume: String, claim_name: String) {
    spec.volumes.get_or_insert_default().push(Volume {
        name: volume,
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name,
            read_only: None,
        }),
        ..Volume::default()
    });
}

/// Metadata of a pod that this object controls.
fn owned<K: Resource<DynamicType = ()>>(owner: &K, metadata: ObjectMeta, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: owner.meta().namespace.clone(),
        owner_references: owner.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..metadata
    }
}

/// What a member on an empty disk reports.
fn report(pod: &Pod) -> Result<Report> {
    let words = || {
        container(pod)
            .into_iter()
            .flat_map(|etcd| etcd.command.iter().flatten())
    };
    let flag = |name: &str| {
        let value = words().find_map(|word| word.strip_prefix(name));
        value.with_context(|| format!("no {name} in the command of {}", pod.name_any()))
    };
    Ok(Report {
        version: contract::VERSION,
        cluster_uid: flag("--cluster-uid=")?.to_owned(),
        pod_uid: pod.uid().context("no UID")?,
        process: "process".to_owned(),
        nonce: "nonce".to_owned(),
        expected_incarnation: flag("--incarnation=")?.parse()?,
        verdict: Verdict::Empty,
        detail: String::new(),
        identity: None,
        wal_term: None,
        wal_index: None,
        wal_client_entries: Some(false),
        wal_cluster_id: None,
        wal_member_id: None,
        members: Vec::new(),
        fingerprint: Fingerprint::default(),
        fetched: None,
        preparing: None,
        refused_image: None,
    })
}

fn outcome(order: &JobOrder) -> JobOutcome {
    match order.task {
        Task::Backup(_) => JobOutcome::Stored(Box::new(Stored {
            object: format!("{}/{}", order.store.path, order.run),
            revision: 1,
            size: 20_480,
            sha256: "00".repeat(32),
            etcd_version: VERSION.number().to_owned(),
            cluster_id: "100".to_owned(),
            member: "c0-0".to_owned(),
            verification: "Checksum".to_owned(),
            incarnation: None,
            started_at: SystemClock.now(),
            completed_at: SystemClock.now(),
        })),
        _ => JobOutcome::Pruned {
            deleted: 0,
            kept: 1,
            skipped: Vec::new(),
            more_skipped: 0,
        },
    }
}
