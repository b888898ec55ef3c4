//! One node: a machine with containerd, kubelet and kube-proxy of its own.
//!
//! Which images it needs and what runs on it is not known here.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::settings::{self, KubeletFiles};
use crate::bed_dir::BedDir;
use crate::cgroup;
use crate::command;
use crate::components::{self, Component};
use crate::control_plane::{Access, ControlPlane};
use crate::deadline::until;
use crate::launch::{Launch, Running};
use crate::namespaces::{Entry, Machine};
use crate::network::{self, Number};
use crate::process::{ProcessId, Sent};

const START_LIMIT: Duration = Duration::from_mins(2);
/// Directories of the host that a node has one of its own of.
const OWN_DIRECTORIES: &[(&str, &str)] = &[("run", "/run"), ("lib", "/var/lib"), ("log", "/var/log")];

/// A program of a node that can be stopped and killed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// Runs containers.
    Containerd,
    /// Runs pods.
    Kubelet,
    /// Leads services to pods.
    Proxy,
}

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    name: String,
    number: Number,
    entry: Entry,
    launches: [(Agent, Launch); 3],
    programs: Programs,
    // Declared in the order in which they end.
    agents: Mutex<Vec<(Agent, Running)>>,
    machine: Mutex<Option<Machine>>,
}

/// Where a node's programs are.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    containerd: PathBuf,
    ctr: PathBuf,
    runc: PathBuf,
    cni: PathBuf,
    kubelet: PathBuf,
    proxy: PathBuf,
}

impl Programs {
    pub(super) async fn find() -> Result<Self> {
        Ok(Self {
            containerd: components::find(Component::Containerd).await?,
            ctr: components::find(Component::Ctr).await?,
            runc: components::find(Component::Runc).await?,
            cni: directory_of(&components::find(Component::CniBridge).await?)?,
            kubelet: components::find(Component::Kubelet).await?,
            proxy: components::find(Component::KubeProxy).await?,
        })
    }
}

/// Makes an image known to the node behind `entry`.
pub(crate) async fn import(entry: Entry, program: &Path, image: &Path) -> Result<()> {
    let image = image.to_str().context("an image's path is not UTF-8")?;
    let mut ctr = entry.command(program)?;
    ctr.arg(format!("--address={}", settings::CONTAINERD_SOCKET))
        .args(["--namespace=k8s.io", "images", "import", "--local", image]);
    command::succeed(ctr.into(), "").await.with_context(|| {
        format!("a node does not take {image}: if it is damaged, `cargo xtask down --purge` has it made anew")
    })?;
    Ok(())
}

impl Node {
    pub(super) async fn start(
        control_plane: &ControlPlane,
        programs: &Programs,
        number: Number,
        all: &[Number],
        pause: &str,
    ) -> Result<Self> {
        let bed = control_plane.bed();
        let name = format!("node-{number}");
        let directory = bed.path().join(&name);
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let own: Vec<(PathBuf, &str)> = OWN_DIRECTORIES
            .iter()
            .map(|(own, place)| (directory.join(own), *place))
            .collect();
        let hub = control_plane.hub()?;
        let machine = Machine::start(&format!("{name}/machine"), hub, bed, &own).await?;
        let entry = machine.entry();
        hide_kernel(bed, &name, entry).await?;
        network::wire_node(hub, entry, number, all).await?;
        let cgroup = format!("{}/{name}", bed.name());
        cgroup::make(&cgroup)?;
        let launches = launches(control_plane, programs, &name, number, &cgroup, pause)?
            .map(|(agent, launch)| (agent, launch.within(entry)));
        let node = Self {
            name,
            number,
            entry,
            launches,
            programs: programs.clone(),
            agents: Mutex::default(),
            machine: Mutex::new(Some(machine)),
        };
        node.start_agent(control_plane, Agent::Containerd).await?;
        Ok(node)
    }

    /// Starts kubelet and kube-proxy. Images come before that.
    pub(super) fn join(&self, control_plane: &ControlPlane) -> Result<()> {
        self.launch(control_plane, Agent::Kubelet)?;
        self.launch(control_plane, Agent::Proxy)
    }

    /// What Kubernetes calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which one it is.
    pub fn number(&self) -> Number {
        self.number
    }

    /// The way into its namespaces.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Makes an image known to it.
    pub async fn import(&self, image: &Path) -> Result<()> {
        import(self.entry, &self.programs.ctr, image).await
    }

    /// An error if one of its agents ended without being asked to.
    pub fn check(&self) -> Result<()> {
        locked(&self.agents)
            .iter_mut()
            .try_for_each(|(_, running)| running.check())
    }

    /// The process of an agent, if it runs.
    pub fn process(&self, agent: Agent) -> Option<ProcessId> {
        locked(&self.agents)
            .iter()
            .find(|(which, _)| *which == agent)
            .and_then(|(_, running)| running.program())
    }

    /// Kills an agent.
    pub fn stop_agent(&self, agent: Agent) -> Result<()> {
        let mut agents = locked(&self.agents);
        let at = agents
            .iter()
            .position(|(which, _)| *which == agent)
            .with_context(|| format!("{agent:?} of {} does not run", self.name))?;
        drop(agents.remove(at));
        Ok(())
    }

    /// Starts an agent. Containerd serves when this returns: kubelet ends if it does not.
    pub async fn start_agent(&self, control_plane: &ControlPlane, agent: Agent) -> Result<()> {
        let log = control_plane
            .bed()
            .path()
            .join(format!("{}/containerd.log", self.name));
        // It takes calls of other clients before it takes those of kubelet.
        let served = || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            log.matches("containerd successfully booted").count()
        };
        let before = served();
        self.launch(control_plane, agent)?;
        if agent != Agent::Containerd {
            return Ok(());
        }
        let what = format!("containerd of {} serves", self.name);
        until(&what, START_LIMIT, || async {
            self.check()?;
            Ok((served() > before).then_some(()))
        })
        .await
    }

    fn launch(&self, control_plane: &ControlPlane, agent: Agent) -> Result<()> {
        let mut agents = locked(&self.agents);
        if agents.iter().any(|(which, _)| *which == agent) {
            bail!("{agent:?} of {} runs already", self.name);
        }
        let (_, launch) = self
            .launches
            .iter()
            .find(|(which, _)| *which == agent)
            .context("every agent has a launch")?;
        agents.push((agent, launch.start(control_plane.bed())?));
        Ok(())
    }

    /// Sends a signal to an agent.
    pub fn signal_agent(&self, agent: Agent, what: Sent) -> Result<()> {
        locked(&self.agents)
            .iter()
            .find(|(which, _)| *which == agent)
            .with_context(|| format!("{agent:?} of {} does not run", self.name))?
            .1
            .send(what)
    }

    /// Whether it has not been lost.
    pub fn exists(&self) -> bool {
        locked(&self.machine).is_some()
    }

    /// Pulls the plug, for good.
    pub(crate) fn lose(&self) {
        drop(locked(&self.machine).take());
        locked(&self.agents).clear();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.lose();
    }
}

/// Shows kubelet what it wants of the kernel, so that it sets nothing on the machine that this node shares with others.
async fn hide_kernel(bed: &BedDir, name: &str, entry: Entry) -> Result<()> {
    let shown = bed.path().join(name).join("kernel");
    fs::create_dir_all(&shown).with_context(|| format!("cannot make {}", shown.display()))?;
    for (setting, value) in settings::KERNEL {
        let file = format!("{name}/kernel/{}", setting.replace('/', "."));
        let file = bed.write(&file, format!("{value}\n"))?;
        let file = file.to_str().context("the bed's path is not UTF-8")?;
        let place = format!("/proc/sys/{setting}");
        entry.run("mount", &["--bind", file, &place]).await?;
    }
    Ok(())
}

fn launches(
    control_plane: &ControlPlane,
    programs: &Programs,
    name: &str,
    number: Number,
    cgroup: &str,
    pause: &str,
) -> Result<[(Agent, Launch); 3]> {
    let bed = control_plane.bed();
    let file = |file: &str| format!("{name}/{file}");
    let authority = control_plane.authority();
    let address = network::node_address(number).to_string();
    let serving = authority.server(name, &[name, &address])?;
    let kubeconfig = |identity| {
        control_plane
            .inner_entrance(identity)
            .kubeconfig(&Access::admin())
            .to_string()
    };
    let user = format!("system:node:{name}");
    let kubelet_access = bed.write(
        &file("kubelet.kubeconfig"),
        kubeconfig(authority.client(&user, "system:nodes")?),
    )?;
    let proxy_access = bed.write(
        &file("kube-proxy.kubeconfig"),
        kubeconfig(authority.client("system:kube-proxy", "system:node-proxier")?),
    )?;
    let cni = bed.path().join(file("cni"));
    fs::create_dir_all(&cni).with_context(|| format!("cannot make {}", cni.display()))?;
    bed.write(&file("cni/pods.conflist"), settings::cni(number).to_string())?;
    let containerd = bed.write(
        &file("containerd.toml"),
        settings::containerd(pause, &programs.cni, &cni, &programs.runc),
    )?;
    let kubelet = settings::kubelet(
        &KubeletFiles {
            authority: &bed.write(&file("ca.crt"), authority.certificate())?,
            certificate: &bed.write(&file("kubelet.crt"), serving.certificate)?,
            key: &bed.write(&file("kubelet.key"), serving.key)?,
            // Nothing outside the cluster is looked up.
            resolver: &bed.write(&file("resolv.conf"), "")?,
        },
        &format!("/{cgroup}"),
    );
    let kubelet = bed.write(&file("kubelet.json"), kubelet.to_string())?;
    let proxy = bed.write(
        &file("kube-proxy.json"),
        settings::proxy(&proxy_access, name).to_string(),
    )?;
    Ok([
        (
            Agent::Containerd,
            Launch::new(
                &file("containerd"),
                programs.containerd.clone(),
                vec![format!("--config={}", containerd.display())],
            )
            .with_path(vec![
                directory_of(&programs.containerd)?,
                directory_of(&programs.runc)?,
            ]),
        ),
        (
            Agent::Kubelet,
            Launch::new(
                &file("kubelet"),
                programs.kubelet.clone(),
                vec![
                    format!("--config={}", kubelet.display()),
                    format!("--kubeconfig={}", kubelet_access.display()),
                    format!("--hostname-override={name}"),
                    format!("--node-ip={address}"),
                    format!("--node-labels=topology.kubernetes.io/zone=zone-{number}"),
                    "--v=2".into(),
                ],
            ),
        ),
        (
            Agent::Proxy,
            Launch::new(
                &file("kube-proxy"),
                programs.proxy.clone(),
                vec![format!("--config={}", proxy.display())],
            ),
        ),
    ])
}

fn directory_of(program: &Path) -> Result<PathBuf> {
    program
        .parent()
        .map(Path::to_owned)
        .with_context(|| format!("{} lies nowhere", program.display()))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
