//! Asks the API server whether it would create the pods of a changed template, before the template changes. Else a member
//! would be restarted whose next pod is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::severity::Severity;
use etcd_operator_cluster_core::build::{self, BuildInputs, OperatorImage};
use etcd_operator_cluster_core::observed_state::{ObservedCluster, PodAdmission};
use etcd_operator_cluster_core::plan::{
    ClusterView, Plan, changes_image, image_failure, is_image_resting, plan,
};
use etcd_operator_etcd::version::Version;
use etcd_operator_runtime::apply::Error as ApplyError;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::Pod;

use super::Reconciler;
use super::objects::{self, DesiredObjects};
use crate::act::Error;
use crate::observe::Observation;

/// For how long an answer counts before the API server, and the webhooks that it calls, are asked again.
const COUNTS_FOR: Duration = Duration::from_secs(30);

/// What the API server said to the changed pods, by cluster; clones share them.
#[derive(Clone, Debug, Default)]
pub struct DryRuns(Arc<Mutex<BTreeMap<ObjectKey, DryRun>>>);

/// A dry run of the changed pods of one cluster.
#[derive(Debug)]
struct DryRun {
    /// When it was answered, by the clock that never goes back.
    at: Duration,
    generation: i64,
    spec_hash: String,
    admission: PodAdmission,
}

impl DryRuns {
    /// Forgets a cluster whose pods are not to be checked any more.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// What the API server said to the same pods less than half a minute ago. `None` if it must be asked.
    fn recent(&self, key: &ObjectKey, observed: &ObservedCluster, now: Duration) -> Option<PodAdmission> {
        let dry_runs = self.lock();
        let dry_run = dry_runs.get(key)?;
        let is_same =
            dry_run.generation == observed.generation && dry_run.spec_hash == observed.wanted.spec_hash;
        let age = now.saturating_sub(dry_run.at);
        (is_same && age < COUNTS_FOR).then(|| dry_run.admission.clone())
    }

    /// Keeps what the API server said.
    fn record(&self, key: &ObjectKey, observed: &ObservedCluster, at: Duration, admission: &PodAdmission) {
        let dry_run = DryRun {
            at,
            generation: observed.generation,
            spec_hash: observed.wanted.spec_hash.clone(),
            admission: admission.clone(),
        };
        self.lock().insert(key.clone(), dry_run);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, DryRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconciler {
    /// Makes the plan. Where it would change the pod template, or request a backup before that, the API server is asked first, and
    /// a Job tries a new etcd image. The plan is made with what they say.
    pub(super) async fn plan_with_checks(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        observation: &mut Observation,
        image: &OperatorImage,
    ) -> Result<Plan, Error> {
        let unchecked = self.plan_with_dry_run(key, cluster, observation, image).await?;
        if !unchecked.needs_image_check {
            let is_resting = is_image_resting(&observation.observed, &observation.observed.persisted);
            if is_resting || !changes_image(&ClusterView::new(&observation.observed)) {
                self.end_image_check(key, cluster).await?;
            }
            return Ok(unchecked);
        }
        let Some((wanted, version)) = self.changed_objects(key, cluster, observation, &unchecked, image)
        else {
            return Ok(unchecked);
        };
        let name = &observation.observed.desired.name;
        let pods = observation.observed.members.values();
        let nodes = pods.filter_map(|member| member.pod.as_ref()?.node.as_deref());
        if let Some(job) = build::image_check_job(name, &wanted.members.object(), &version, nodes) {
            let is_known = image_failure(&observation.observed, &unchecked.persisted).is_some();
            observation.observed.image_check = self.check_image(key, cluster, &job, is_known).await?;
        }
        Ok(plan(&observation.observed))
    }

    /// Makes the plan with what the API server says to the pods of a changed template.
    async fn plan_with_dry_run(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        observation: &mut Observation,
        image: &OperatorImage,
    ) -> Result<Plan, Error> {
        let unchecked = plan(&observation.observed);
        if !unchecked.needs_dry_run {
            self.dry_runs.forget(key);
            return Ok(unchecked);
        }
        let now = self.deps.clock.elapsed();
        let admission = match self.dry_runs.recent(key, &observation.observed, now) {
            Some(admission) => admission,
            None => match self.changed_pod(key, cluster, observation, &unchecked, image) {
                Some(pod) => self.dry_run(key, cluster, observation, &pod).await?,
                // The spec is refused as it is built, which is reported as such.
                None => return Ok(unchecked),
            },
        };
        observation.observed.pod_admission = admission;
        Ok(plan(&observation.observed))
    }

    /// A pod of the changed template, under the name of one that exists. `None` if the template cannot be built.
    fn changed_pod(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        observation: &Observation,
        plan: &Plan,
        image: &OperatorImage,
    ) -> Option<Pod> {
        let observed = &observation.observed;
        let (wanted, _) = self.changed_objects(key, cluster, observation, plan, image)?;
        let uid = observation.set.as_ref()?.metadata.uid.as_deref()?;
        let mut members = observed.members.iter();
        let existing = members.find(|(_, member)| member.pod.is_some());
        let ordinal = existing.map_or(0, |(ordinal, _)| ordinal.get());
        Some(build::pod_of_set(&wanted.members.object(), uid, ordinal))
    }

    /// The objects with the changed pod template, and its version; none if the spec is refused as they are built.
    fn changed_objects(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        observation: &Observation,
        plan: &Plan,
        image: &OperatorImage,
    ) -> Option<(Arc<DesiredObjects>, Version)> {
        let images = (image, &self.deps.default_repository);
        let build_inputs = objects::build_inputs(plan, observation, cluster.status.as_ref(), images)?;
        let build_inputs = BuildInputs {
            may_update_template: true,
            ..build_inputs
        };
        let version = build_inputs.version.clone();
        let desired = &observation.observed.desired;
        let wanted = self.derived.wanted(key, desired, build_inputs).ok()?;
        Some((wanted, version))
    }

    /// Asks the API server in a dry run. An error only if this process is not the leader or the pod cannot be sent; any
    /// other failure is an answer about the pod.
    async fn dry_run(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        observation: &Observation,
        pod: &Pod,
    ) -> Result<PodAdmission, Error> {
        let admission = match self.deps.applier.dry_run_create(pod).await {
            Ok(()) => PodAdmission::Admitted,
            Err(error @ (ApplyError::NotLeading(_) | ApplyError::Unwritable { .. })) => {
                return Err(error.into());
            }
            Err(error) => match error.status() {
                Some(status) => PodAdmission::from_failure(Some(status.code), status.message.clone()),
                None => PodAdmission::from_failure(None, error.to_string()),
            },
        };
        if let PodAdmission::NotSupported { message } = &admission {
            let text = format!(
                "The changed pods were not checked in a dry run before the rollout: {}.",
                message.trim_end_matches('.')
            );
            let (reason, severity) = ("PodsNotChecked", Severity::Warning);
            self.deps
                .reporter
                .tell(cluster, severity, reason, "Reconcile", text);
        }
        // A webhook that does not answer takes longer than an answer counts: that begins when the answer is there.
        let at = self.deps.clock.elapsed();
        self.dry_runs.record(key, &observation.observed, at, &admission);
        Ok(admission)
    }
}
