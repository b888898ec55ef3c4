//! Nodes that are emptied or lost.

use anyhow::{Result, bail};

use crate::cluster::{Cluster, Node};
use crate::command::printed;

impl Cluster {
    /// Pulls a node's plug, for good: its processes, memory, and what was mounted there are gone. Its object stays.
    pub fn lose_node(&self, node: &Node) -> Result<()> {
        if !node.exists() {
            bail!("{} is lost already", node.name());
        }
        self.chronicle()
            .note(format_args!("fault: {} is lost for good", node.name()));
        node.lose();
        Ok(())
    }

    /// Moves everything off a node in order, respecting disruption budgets.
    pub async fn drain(&self, node: &Node, seconds: u32) -> Result<()> {
        self.chronicle()
            .note(format_args!("fault: {} is drained", node.name()));
        let timeout = format!("--timeout={seconds}s");
        let drain = [
            "drain",
            node.name(),
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--force",
            &timeout,
        ];
        printed(self.control_plane().kubectl(&drain).await?, "kubectl drain")?;
        Ok(())
    }

    /// Lets pods onto a drained node again.
    pub async fn uncordon(&self, node: &Node) -> Result<()> {
        self.chronicle()
            .note(format_args!("healed: {} takes pods again", node.name()));
        printed(
            self.control_plane().kubectl(&["uncordon", node.name()]).await?,
            "kubectl uncordon",
        )?;
        Ok(())
    }
}
