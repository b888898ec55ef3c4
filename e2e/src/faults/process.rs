//! Processes of containers: killed or made to stand still from outside, so that neither kubelet nor containerd has
//! a hand in it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};

use crate::cgroup;
use crate::chronicle::Chronicle;
use crate::cluster::{Cluster, Node};
use crate::deadline::until;
use crate::process::{ProcessId, Sent};

/// How long a disk may take to answer a process that was told to stop.
const STANDSTILL: Duration = Duration::from_mins(1);

/// A running container, and no later one in its place.
#[derive(Clone, Debug)]
pub struct Container {
    /// How containerd calls it.
    pub id: String,
    group: String,
    /// Whose it is, for people.
    pub(super) what: String,
    chronicle: Chronicle,
}

impl Cluster {
    /// A container of a pod, as it runs now.
    pub async fn container(&self, namespace: &str, pod: &str, container: &str) -> Result<Container> {
        let found = Api::<Pod>::namespaced(self.client().await?, namespace)
            .get(pod)
            .await?;
        let id = found
            .status
            .and_then(|status| status.container_statuses)
            .into_iter()
            .flatten()
            .find(|status| status.name == container)
            .and_then(|status| status.container_id)
            .with_context(|| format!("the pod {pod} runs no container {container}"))?;
        let (_, id) = id
            .split_once("://")
            .with_context(|| format!("{id} is no ID of a container"))?;
        Ok(Container {
            id: id.to_owned(),
            group: self.control_plane().bed().name().to_owned(),
            what: format!("container {container} of {namespace}/{pod}"),
            chronicle: self.chronicle(),
        })
    }

    /// Deletes a pod, with this many seconds to end; 0 forces it out of the API at once.
    pub async fn delete_pod(&self, namespace: &str, pod: &str, seconds: u32) -> Result<()> {
        self.chronicle()
            .note(format_args!("fault: the pod {namespace}/{pod} is deleted"));
        Api::<Pod>::namespaced(self.client().await?, namespace)
            .delete(pod, &DeleteParams::default().grace_period(seconds))
            .await
            .with_context(|| format!("cannot delete the pod {pod}"))?;
        Ok(())
    }

    /// The node a pod runs on, and its address.
    pub async fn place_of(&self, namespace: &str, pod: &str) -> Result<(&Node, String)> {
        let found = Api::<Pod>::namespaced(self.client().await?, namespace)
            .get(pod)
            .await?;
        let node = found.spec.and_then(|spec| spec.node_name);
        let address = found.status.and_then(|status| status.pod_ip);
        let node = self.node(&node.with_context(|| format!("the pod {pod} is on no node"))?)?;
        Ok((
            node,
            address.with_context(|| format!("the pod {pod} has no address"))?,
        ))
    }
}

impl Container {
    /// Its processes.
    pub fn processes(&self) -> Result<Vec<ProcessId>> {
        cgroup::processes(&self.group, &self.id)
            .with_context(|| format!("no control group of container {}", self.id))
    }

    /// The most memory it has used so far as its control group counts it, the cache of files it wrote among it.
    pub fn most_memory(&self) -> Result<u64> {
        cgroup::most_memory(&self.group, &self.id)
            .with_context(|| format!("nobody counts the memory of container {}", self.id))
    }

    /// Kills all its processes.
    pub fn kill(&self) -> Result<()> {
        self.send(Sent::Kill)
    }

    /// Makes all its processes stand still, and comes back when they do: whoever changes their files after that is not
    /// overtaken by what they were about to write.
    pub async fn pause(&self) -> Result<()> {
        self.send(Sent::Pause)?;
        until("what was told to stop stands still", STANDSTILL, || async {
            let still = self.processes()?.into_iter().all(ProcessId::stands_still);
            Ok(still.then_some(()))
        })
        .await
    }

    /// Lets them go on.
    pub fn resume(&self) -> Result<()> {
        self.send(Sent::Resume)
    }

    fn send(&self, what: Sent) -> Result<()> {
        self.chronicle
            .note(format_args!("fault: {} gets the signal to {what:?}", self.what));
        let mut reached = false;
        for process in self.processes()? {
            reached |= process.send(what)?;
        }
        if !reached {
            bail!("container {} has no process", self.id);
        }
        Ok(())
    }
}
