//! What an `EtcdCluster` asks for, parsed once: defaults resolved, texts turned into types, alternatives into enums.
//!
//! Pure. Whatever cannot be used becomes a refusal that names the field; nothing the user wrote is dropped in silence.

mod options;
mod pod;
mod service;
mod storage;
#[cfg(test)]
mod tests;

pub use options::{Compaction, DEFAULT_QUOTA, Options};
pub use pod::Pod;
pub(crate) use pod::VARIABLES;
pub use service::Service;
pub use storage::Storage;

use std::borrow::Cow;
use std::time::Duration;

use etcd_operator_api::{
    EtcdCluster,
    cluster::{
        BackupFirstPolicy, EtcdClusterSpec, ImagePullPolicy, MAX_SIZE, PodPolicy, StaticTls,
        UPSTREAM_REPOSITORY, UpdateStrategy,
    },
    names::ClusterName,
    refusal::{Refusal, Unbuilt, unbuilt},
    version::EtcdVersion,
};
use etcd_operator_etcd_types::{
    policy::{self, DEFAULT_MINOR, Verdict},
    version::Version,
};
use serde_json::json;

/// Fields whose feature does not exist yet. Building one takes its line away.
const UNBUILT: &[Unbuilt] = &[
    Unbuilt::field("spec.service.externalNames"),
    Unbuilt::field("spec.TLS.managed"),
    Unbuilt::field("spec.TLS.certManager"),
    Unbuilt::field("spec.auth"),
    Unbuilt::field("spec.maintenance"),
    Unbuilt::unless("spec.recovery.onQuorumLoss", "Manual"),
    Unbuilt::unless("spec.recovery.onDataLoss", "Manual"),
    Unbuilt::field("spec.monitoring"),
];

/// How long a node may be gone where the user does not say.
const REPLACE_AFTER: Duration = Duration::from_mins(5);
/// How long a restarted member may make no progress where the user does not say.
const PROGRESS_DEADLINE: Duration = Duration::from_mins(10);
/// How long updated members must be ready before the last one of the lower minor version goes, where the user does not say.
const MIN_READY: Duration = Duration::from_secs(30);

/// A valid spec, parsed: defaults are filled in, and alternatives are enums.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The cluster's name.
    pub name: ClusterName,
    /// The number of members; 0 hibernates.
    pub size: Size,
    /// Which etcd runs.
    pub image: Image,
    /// When the image is pulled; Kubernetes decides without.
    pub pull_policy: Option<ImagePullPolicy>,
    /// Secrets for the image's registry.
    pub pull_secrets: Vec<String>,
    /// Whether the operator only observes.
    pub paused: bool,
    /// How pods are shaped.
    pub pod: Pod,
    /// What members keep their data on.
    pub storage: Storage,
    /// How the Service for clients is published.
    pub service: Service,
    /// Settings of etcd.
    pub options: Options,
    /// Certificates in Secrets of the user.
    pub tls: Tls,
    /// How changes reach running members.
    pub updates: Updates,
    /// How long a node may be gone before its member is replaced.
    pub replace_after: Duration,
    /// Whether the first data are those of a backup: nothing starts before a restore brings them.
    pub awaits_restore: bool,
    /// Fields that are accepted and have no effect, for the user to know.
    pub without_effect: Vec<&'static str>,
}

/// The number of members, 0 to 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u8);

impl Size {
    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// So many members, or as many as there can be.
    pub fn saturating_new(members: u8) -> Self {
        Self(members.min(u8::try_from(MAX_SIZE).unwrap_or(u8::MAX)))
    }
}

/// The image of etcd, and the version in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A whole reference, and the version that is in it.
    Whole {
        /// The reference.
        reference: String,
        /// The version.
        version: Version,
    },
    /// A repository, to which the version is added.
    Tagged {
        /// The repository; the installation's default without.
        repository: Option<String>,
        /// The version; the operator's own choice without.
        version: Option<Version>,
    },
}

impl Image {
    /// The version that is asked for; none leaves it to the operator.
    pub fn version(&self) -> Option<&Version> {
        match self {
            Self::Whole { version, .. } => Some(version),
            Self::Tagged { version, .. } => version.as_ref(),
        }
    }
}

/// Secrets with certificates; none means plain traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// For traffic between members.
    pub peer: Option<String>,
    /// For traffic with clients: the members' Secret and the operator's.
    pub client: Option<ClientTls>,
}

/// The two sides of encrypted client traffic; one without the other is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// The Secret mounted into members.
    pub server: String,
    /// The Secret with which the operator reaches them.
    pub operator: String,
}

/// When and how members are restarted for a change of the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updates {
    /// Who restarts members, if anybody.
    pub strategy: UpdateStrategy,
    /// How long a restarted member may make no progress before the rollout counts as stalled.
    pub progress_deadline: Duration,
    /// How long updated members must be ready before the last one of the lower minor version is restarted.
    pub min_ready: Duration,
    /// Whether a backup comes before another minor version.
    pub backup_first: BackupFirstPolicy,
    /// Whether members may be downgraded by one minor version.
    pub allow_downgrade: bool,
}

impl Desired {
    /// The version that is meant: what the spec says, else what was chosen before, else the newest of the default
    /// minor.
    pub fn version(&self, chosen: Option<&Version>) -> Version {
        version(&self.image, chosen)
    }

    /// The same with another number of log entries after which members take a snapshot of the log, if one is given.
    pub fn with_snapshot_count(&self, count: Option<u64>) -> Cow<'_, Self> {
        if count.is_none() {
            return Cow::Borrowed(self);
        }
        let mut other = self.clone();
        other.options.snapshot_count = count;
        Cow::Owned(other)
    }
}

fn version(image: &Image, chosen: Option<&Version>) -> Version {
    let known = image.version().or(chosen).cloned();
    known.unwrap_or_else(|| policy::newest(DEFAULT_MINOR))
}

/// The fields that are refused because their feature does not exist yet.
pub fn unimplemented_fields() -> &'static [Unbuilt] {
    UNBUILT
}

/// Parses an `EtcdCluster`, or says everything that is wrong with it. Whether its pods can be built is tried by `build::desired`.
pub fn parse(cluster: &EtcdCluster) -> Result<Desired, Vec<Refusal>> {
    let spec = &cluster.spec;
    let mut refused = unbuilt(&json!({ "spec": spec }), UNBUILT);
    let mut notes = Vec::new();

    let name = collect(
        &mut refused,
        name(cluster.metadata.name.as_deref().unwrap_or_default()),
    );
    let size = collect(&mut refused, size(spec.size));
    let image = collect(&mut refused, image(spec));
    let pod = collect(&mut refused, pod::pod(spec.pod.as_ref(), &mut notes));
    let storage = collect(&mut refused, storage::storage(spec));
    if non_empty(spec.image.as_ref()).is_some() && non_empty(spec.repository.as_ref()).is_some() {
        notes.push("spec.repository");
    }
    let service = collect(&mut refused, service::service(spec.service.as_ref()));
    let options = collect(&mut refused, options::options(spec.etcd.as_ref()));
    let tls = collect(
        &mut refused,
        tls(spec.tls.as_ref().and_then(|t| t.static_.as_ref())),
    );

    match (name, size, image, pod, storage, service, options, tls) {
        (
            Some(name),
            Some(size),
            Some(image),
            Some(pod),
            Some(storage),
            Some(service),
            Some(options),
            Some(tls),
        ) if refused.is_empty() => Ok(Desired {
            name,
            size,
            image,
            pull_policy: spec.image_pull_policy,
            pull_secrets: spec
                .image_pull_secrets
                .iter()
                .flatten()
                .map(|s| s.name.clone())
                .collect(),
            paused: spec.paused,
            pod,
            storage,
            service,
            options,
            tls,
            updates: updates(spec),
            replace_after: replace_after(spec),
            awaits_restore: spec.bootstrap.as_ref().is_some_and(|boot| boot.await_restore),
            without_effect: notes,
        }),
        _ => Err(refused),
    }
}

/// The fields of a refused spec that it takes to observe the members: size, TLS and storage. It is paused, so that
/// nothing is changed. `None` if the cluster has not formed or has no members.
pub fn without_refused_fields(cluster: &EtcdCluster) -> Option<EtcdCluster> {
    let status = cluster.status.as_ref()?;
    status.cluster_id.as_ref()?;
    let spec = &cluster.spec;
    let size = size(spec.size).map_or(status.size, |_| spec.size);
    let claim = spec
        .pod
        .as_ref()
        .and_then(|pod| pod.persistent_volume_claim_spec.clone());
    let plain = EtcdCluster {
        spec: EtcdClusterSpec {
            size,
            paused: true,
            tls: spec.tls.clone(),
            storage: spec.storage.clone(),
            pod: claim.map(|claim| PodPolicy {
                persistent_volume_claim_spec: Some(claim),
                ..PodPolicy::default()
            }),
            ..EtcdClusterSpec::default()
        },
        ..cluster.clone()
    };
    (size > 0).then_some(plain)
}

/// The version in the status, which counts where the spec names none. `None` if there is none or it cannot be parsed.
pub fn recorded_version(cluster: &EtcdCluster) -> Option<Version> {
    cluster.status.as_ref()?.current_version.parse().ok()
}

/// Keeps a good part, or collects what is wrong with a bad one, so that the user hears everything at once.
fn collect<T>(refused: &mut Vec<Refusal>, part: Result<T, Vec<Refusal>>) -> Option<T> {
    part.map_err(|more| refused.extend(more)).ok()
}

fn name(text: &str) -> Result<ClusterName, Vec<Refusal>> {
    text.parse().map_err(|e| {
        vec![Refusal::invalid(
            "metadata.name",
            format!("'{text}' {e}; for example: orders-etcd"),
        )]
    })
}

fn size(size: i32) -> Result<Size, Vec<Refusal>> {
    let in_range = u8::try_from(size).ok().filter(|n| i32::from(*n) <= MAX_SIZE);
    in_range.map(Size).ok_or_else(|| {
        let problem =
            format!("is {size}, must be 0 to {MAX_SIZE}, where 0 hibernates the cluster; for example: 3");
        vec![Refusal::invalid("spec.size", problem)]
    })
}

/// The image and its version. Refused if a repository has a tag, if a whole reference does not tell its version, or if
/// the operator does not run that version.
fn image(spec: &EtcdClusterSpec) -> Result<Image, Vec<Refusal>> {
    let refused = |field: &str, problem: String| vec![Refusal::invalid(field, problem)];
    let written = non_empty(spec.version.as_ref())
        .map(str::parse::<EtcdVersion>)
        .transpose()
        .map_err(|error| refused("spec.version", error.to_string()))?;
    let (image, field) = match non_empty(spec.image.as_ref()) {
        None => {
            let repository = non_empty(spec.repository.as_ref());
            let name = repository.and_then(|repository| repository.rsplit('/').next());
            if let Some(repository) = repository.filter(|_| name.is_some_and(|name| name.contains(':'))) {
                let problem = format!(
                    "is '{repository}', must be a name without tag: write the version into spec.version, or the whole reference into spec.image; for example: {UPSTREAM_REPOSITORY}"
                );
                return Err(refused("spec.repository", problem));
            }
            let version = written.map(to_version);
            let repository = repository.map(str::to_owned);
            (Image::Tagged { repository, version }, "spec.version")
        }
        Some(reference) => {
            let field = if written.is_some() {
                "spec.version"
            } else {
                "spec.image"
            };
            let version = written.or_else(|| EtcdVersion::from_image(reference)).ok_or_else(|| {
                let problem = format!("must say which version is in spec.image, because '{reference}' has no tag that tells it; for example: 3.6.16");
                refused("spec.version", problem)
            })?;
            let reference = reference.to_owned();
            let version = to_version(version);
            (Image::Whole { reference, version }, field)
        }
    };
    match image.version().map(policy::verdict) {
        Some(Verdict::Refused(why)) => Err(refused(field, why.to_string())),
        _ => Ok(image),
    }
}

fn to_version(version: EtcdVersion) -> Version {
    let EtcdVersion {
        major,
        minor,
        patch,
        pre,
    } = version;
    Version {
        major,
        minor,
        patch,
        pre,
    }
}

fn updates(spec: &EtcdClusterSpec) -> Updates {
    let policy = spec.updates.as_ref();
    let seconds = |seconds: Option<i32>| u64::try_from(seconds?).ok().map(Duration::from_secs);
    let deadline = policy.and_then(|policy| seconds(policy.progress_deadline_seconds));
    let min_ready = policy.and_then(|policy| seconds(policy.min_ready_seconds));
    Updates {
        strategy: policy.map_or(UpdateStrategy::Automatic, |policy| policy.strategy),
        progress_deadline: deadline.unwrap_or(PROGRESS_DEADLINE),
        min_ready: min_ready.unwrap_or(MIN_READY),
        backup_first: policy.map_or(BackupFirstPolicy::IfConfigured, |policy| policy.backup_first),
        allow_downgrade: policy.is_some_and(|policy| policy.allow_downgrade),
    }
}

fn replace_after(spec: &EtcdClusterSpec) -> Duration {
    let wish = spec
        .recovery
        .as_ref()
        .and_then(|recovery| recovery.replace_after.as_ref());
    wish.map_or(REPLACE_AFTER, |span| span.0)
}

/// The Secrets with certificates. TLS for clients needs both the members' and the operator's.
fn tls(secrets: Option<&StaticTls>) -> Result<Tls, Vec<Refusal>> {
    let Some(secrets) = secrets else {
        return Ok(Tls::default());
    };
    let member = secrets.member.as_ref();
    let peer = member
        .and_then(|m| non_empty(m.peer_secret.as_ref()))
        .map(str::to_owned);
    let server = member.and_then(|m| non_empty(m.server_secret.as_ref()));
    let client = match (server, non_empty(secrets.operator_secret.as_ref())) {
        (Some(server), Some(operator)) => Some(ClientTls {
            server: server.to_owned(),
            operator: operator.to_owned(),
        }),
        (None, None) => None,
        (None, Some(_)) => {
            let problem = "is set but spec.TLS.static.member.serverSecret is not: members would not speak TLS to the operator; set both or neither";
            return Err(vec![Refusal::invalid("spec.TLS.static.operatorSecret", problem)]);
        }
        (Some(_), None) => {
            let problem = "is set but spec.TLS.static.operatorSecret is not: the operator could not reach the members; set both or neither";
            return Err(vec![Refusal::invalid(
                "spec.TLS.static.member.serverSecret",
                problem,
            )]);
        }
    };
    Ok(Tls { peer, client })
}

/// The text unless it is empty: clients of the ancestor send empty texts for fields they do not set.
fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|t| !t.is_empty())
}
