//! Why a container has not been started, and why a pod finds no node.

use std::collections::BTreeSet;
use std::fmt;

/// Why a container has not been started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartDelay {
    /// The scheduler has not assigned a node yet.
    NotScheduled,
    /// The kubelet of this node prepares volumes and images.
    NodePreparing {
        /// The node.
        node: String,
    },
    /// The kubelet reports why a container waits.
    Waiting(WaitingContainer),
}

/// A container that the kubelet reports as waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingContainer {
    /// The init container that waits; none if it is etcd's.
    pub init_container: Option<String>,
    /// The cause, as far as it is recognized.
    pub cause: WaitingCause,
    /// The kubelet's text.
    pub text: String,
}

/// Why the kubelet does not start a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingCause {
    /// The image cannot be pulled.
    ImagePull,
    /// The kubelet is about to create it.
    Creating,
    /// A Secret, ConfigMap or key of an environment variable does not exist.
    MissingReference,
    /// Anything else.
    Other,
}

impl StartDelay {
    /// Whether every container passes through this state while it starts, so that it is no problem by itself.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NotScheduled | Self::NodePreparing { .. } => true,
            Self::Waiting(waiting) => waiting.cause == WaitingCause::Creating,
        }
    }
}

impl fmt::Display for StartDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotScheduled => f.write_str("no node has it yet"),
            Self::NodePreparing { node } => write!(f, "node {node} prepares it"),
            Self::Waiting(WaitingContainer {
                init_container: Some(name),
                text,
                ..
            }) => write!(f, "its init container {name} waits: {text}"),
            Self::Waiting(waiting) => f.write_str(&waiting.text),
        }
    }
}

/// Why the scheduler finds no node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unschedulable {
    /// What nodes lack, as far as it is recognized.
    pub obstacles: BTreeSet<Obstacle>,
    /// The scheduler's text.
    pub text: String,
}

/// What keeps a pod off nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// A volume that is not bound or not reachable.
    Volume,
    /// Too little of a resource.
    Resources,
    /// The pod's node selector or node affinity.
    NodeAffinity,
    /// The pod's anti-affinity.
    AntiAffinity,
    /// The pod's topology spread constraints.
    TopologySpread,
    /// A taint that the pod does not tolerate.
    Taint,
}
