//! What an `EtcdCluster` asks for, parsed once: defaults resolved, texts turned into types, alternatives into enums.
//!
//! Pure. Whatever cannot be used becomes a refusal that names the field; nothing the user wrote is dropped in silence.

mod options;
mod pod;
mod storage;
#[cfg(test)]
mod tests;

pub use options::{Compaction, Options};
pub use pod::Pod;
pub use storage::Storage;

use etcd_operator_api::{
    EtcdCluster,
    cluster::{DEFAULT_REPOSITORY, EtcdClusterSpec, ImagePullPolicy, MAX_SIZE, StaticTls},
    names::ClusterName,
    refusal::{Refusal, Unbuilt, unbuilt},
    version::EtcdVersion,
};
use serde_json::json;

/// Fields whose feature does not exist yet. Building one takes its line away.
const UNBUILT: &[Unbuilt] = &[
    Unbuilt::field("spec.service"),
    Unbuilt::field("spec.TLS.managed"),
    Unbuilt::field("spec.TLS.certManager"),
    Unbuilt::field("spec.auth"),
    Unbuilt::field("spec.updates"),
    Unbuilt::field("spec.maintenance"),
    Unbuilt::field("spec.recovery"),
    Unbuilt::field("spec.bootstrap"),
    Unbuilt::field("spec.monitoring"),
    Unbuilt::field("spec.pod.patch"),
];

/// What an `EtcdCluster` asks for.
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
    /// Settings of etcd.
    pub options: Options,
    /// Certificates in Secrets of the user.
    pub tls: Tls,
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
}

/// Which etcd runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A whole reference, and the version that is in it.
    Whole {
        /// The reference.
        reference: String,
        /// The version.
        version: EtcdVersion,
    },
    /// A repository, to which the version is added.
    Tagged {
        /// The repository.
        repository: String,
        /// The version; the operator's own choice without.
        version: Option<EtcdVersion>,
    },
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

/// Parses an `EtcdCluster`, or says everything that is wrong with it.
pub fn desired(cluster: &EtcdCluster) -> Result<Desired, Vec<Refusal>> {
    let spec = &cluster.spec;
    let mut refused = unbuilt(&json!({ "spec": spec }), UNBUILT);
    let mut notes = Vec::new();

    let name = keep(
        &mut refused,
        name(cluster.metadata.name.as_deref().unwrap_or_default()),
    );
    let size = keep(&mut refused, size(spec.size));
    let image = keep(&mut refused, image(spec));
    let pod = keep(&mut refused, pod::pod(spec.pod.as_ref(), &mut notes));
    let storage = keep(&mut refused, storage::storage(spec));
    if filled(spec.image.as_ref()).is_some() && filled(spec.repository.as_ref()).is_some() {
        notes.push("spec.repository");
    }
    let options = keep(&mut refused, options::options(spec.etcd.as_ref()));
    let tls = keep(
        &mut refused,
        tls(spec.tls.as_ref().and_then(|t| t.static_.as_ref())),
    );

    match (name, size, image, pod, storage, options, tls) {
        (Some(name), Some(size), Some(image), Some(pod), Some(storage), Some(options), Some(tls))
            if refused.is_empty() =>
        {
            Ok(Desired {
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
                options,
                tls,
                without_effect: notes,
            })
        }
        _ => Err(refused),
    }
}

/// Keeps a good part, or collects what is wrong with a bad one, so that the user hears everything at once.
fn keep<T>(refused: &mut Vec<Refusal>, part: Result<T, Vec<Refusal>>) -> Option<T> {
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

fn image(spec: &EtcdClusterSpec) -> Result<Image, Vec<Refusal>> {
    let version = filled(spec.version.as_ref())
        .map(str::parse::<EtcdVersion>)
        .transpose()
        .map_err(|e| vec![Refusal::invalid("spec.version", e.to_string())])?;
    let Some(reference) = filled(spec.image.as_ref()) else {
        let repository = filled(spec.repository.as_ref())
            .unwrap_or(DEFAULT_REPOSITORY)
            .to_owned();
        return Ok(Image::Tagged { repository, version });
    };
    let version = version.or_else(|| EtcdVersion::from_image(reference)).ok_or_else(|| {
        let problem = format!("must say which version is in spec.image, because '{reference}' has no tag that tells it; for example: 3.6.16");
        vec![Refusal::invalid("spec.version", problem)]
    })?;
    Ok(Image::Whole {
        reference: reference.to_owned(),
        version,
    })
}

fn tls(secrets: Option<&StaticTls>) -> Result<Tls, Vec<Refusal>> {
    let Some(secrets) = secrets else {
        return Ok(Tls::default());
    };
    let member = secrets.member.as_ref();
    let peer = member
        .and_then(|m| filled(m.peer_secret.as_ref()))
        .map(str::to_owned);
    let server = member.and_then(|m| filled(m.server_secret.as_ref()));
    let client = match (server, filled(secrets.operator_secret.as_ref())) {
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

/// Clients of the ancestor send empty texts for fields they do not set.
fn filled(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|t| !t.is_empty())
}
