//! Packets that do not arrive: cables out of the bridge, rules that drop, a token bucket that lets little through.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::chronicle::Lasting;
use crate::cluster::{Cluster, Node};
use crate::namespaces::Entry;
use crate::network::{self, DNS_SERVICE, FAULTS, NODE_INTERFACE, Number};

/// A node whose cable is out.
#[derive(Debug)]
pub struct Unplugged {
    hub: Entry,
    node: Number,
    lasting: Lasting,
}

/// Rules that drop packets.
#[derive(Debug)]
pub struct Rules {
    name: String,
    placed: Vec<(Entry, Vec<String>)>,
    lasting: Lasting,
}

/// A limited rate, in both directions of a node's cable.
#[derive(Debug)]
pub struct Rate {
    interfaces: Vec<(Entry, String)>,
    lasting: Lasting,
}

impl Cluster {
    /// Cuts a node off from everything outside it. Nobody is told.
    pub async fn cut_node(&self, node: &Node) -> Result<Unplugged> {
        let hub = self.control_plane().hub()?;
        let lasting = Lasting::begun(&self.chronicle(), format!("{} is cut off", node.name()));
        network::unplug(hub, node.number()).await?;
        Ok(Unplugged {
            hub,
            node: node.number(),
            lasting,
        })
    }

    /// Cuts a pod off from everybody, its own node included.
    pub async fn cut_pod(&self, namespace: &str, pod: &str) -> Result<Rules> {
        let (node, address) = self.place_of(namespace, pod).await?;
        let what = format!("the pod {namespace}/{pod} is cut off");
        let lasting = Lasting::begun(&self.chronicle(), what);
        Rules::add(&[node.entry()], &[&["-s", &address], &["-d", &address]], lasting).await
    }

    /// Loses this share of the packets to a pod, from 0 to 1.
    pub async fn lose_packets(&self, namespace: &str, pod: &str, share: f64) -> Result<Rules> {
        let (node, address) = self.place_of(namespace, pod).await?;
        let what = format!("a share of {share} of the packets to {namespace}/{pod} is lost");
        let lasting = Lasting::begun(&self.chronicle(), what);
        let share = share.to_string();
        let random = ["-m", "statistic", "--mode", "random", "--probability", &share];
        Rules::add(
            &[node.entry()],
            &[&[&["-d", &address], random.as_slice()].concat()],
            lasting,
        )
        .await
    }

    /// Lets no question reach the cluster's DNS.
    pub async fn fail_dns(&self) -> Result<Rules> {
        let entries: Vec<Entry> = self
            .nodes()
            .iter()
            .filter(|node| node.exists())
            .map(Node::entry)
            .collect();
        let dns = DNS_SERVICE.to_string();
        let to = |protocol| ["-d", &dns, "-p", protocol, "--dport", "53"].map(str::to_owned);
        let (udp, tcp) = (to("udp"), to("tcp"));
        let words = |rule: &[String; 6]| -> Vec<String> { rule.to_vec() };
        let lasting = Lasting::begun(&self.chronicle(), "DNS answers nobody".to_owned());
        Rules::add_owned(&entries, &[words(&udp), words(&tcp)], lasting).await
    }

    /// Lets no more than this many bits per second through a node's cable, in each direction.
    pub async fn limit_rate(&self, node: &Node, bits_per_second: u64) -> Result<Rate> {
        let what = format!(
            "{bits_per_second} bits per second pass the cable of {}",
            node.name()
        );
        let rate = Rate {
            lasting: Lasting::begun(&self.chronicle(), what),
            interfaces: vec![
                (node.entry(), NODE_INTERFACE.to_owned()),
                (self.control_plane().hub()?, network::port_of(node.number())),
            ],
        };
        let bits = format!("{bits_per_second}bit");
        for (entry, interface) in &rate.interfaces {
            let bucket = [
                "qdisc", "add", "dev", interface, "root", "tbf", "rate", &bits, "burst", "16kb", "latency",
                "500ms",
            ];
            entry.run("tc", &bucket).await?;
        }
        Ok(rate)
    }
}

impl Unplugged {
    /// Whether the bridge really does without it.
    pub async fn bites(&self) -> Result<bool> {
        let port = network::port_of(self.node);
        let link = self.hub.run("ip", &["-o", "link", "show", &port]).await?;
        Ok(!link.contains(" master "))
    }

    /// Puts the cable back.
    pub async fn heal(self) -> Result<()> {
        network::plug(self.hub, self.node).await?;
        self.lasting.healed();
        Ok(())
    }
}

impl Rules {
    async fn add(entries: &[Entry], rules: &[&[&str]], lasting: Lasting) -> Result<Self> {
        let owned: Vec<Vec<String>> = rules
            .iter()
            .map(|rule| rule.iter().map(|word| (*word).to_owned()).collect())
            .collect();
        Self::add_owned(entries, &owned, lasting).await
    }

    async fn add_owned(entries: &[Entry], rules: &[Vec<String>], lasting: Lasting) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fault-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let named = ["-m", "comment", "--comment", &name, "-j", "DROP"].map(str::to_owned);
        let mut added = Self {
            name,
            placed: Vec::new(),
            lasting,
        };
        for entry in entries {
            for rule in rules {
                let rule = [rule.as_slice(), &named].concat();
                iptables(*entry, "-A", &rule).await?;
                added.placed.push((*entry, rule));
            }
        }
        Ok(added)
    }

    /// How many packets it has dropped.
    pub async fn dropped(&self) -> Result<u64> {
        let mut entries: Vec<Entry> = Vec::new();
        for (entry, _) in &self.placed {
            if entries.iter().all(|known| known.keeper() != entry.keeper()) {
                entries.push(*entry);
            }
        }
        let mut sum = 0;
        for entry in entries {
            let listed = entry
                .run("iptables", &["-w", "-t", "raw", "-nvxL", FAULTS])
                .await?;
            for line in listed
                .lines()
                .filter(|line| line.contains(&format!("/* {} */", self.name)))
            {
                let packets = line.split_ascii_whitespace().next().unwrap_or_default();
                sum += packets
                    .parse::<u64>()
                    .with_context(|| format!("a rule has no count: {line}"))?;
            }
        }
        Ok(sum)
    }

    /// Takes the rules away.
    pub async fn heal(self) -> Result<()> {
        for (entry, rule) in &self.placed {
            iptables(*entry, "-D", rule).await?;
        }
        self.lasting.healed();
        Ok(())
    }
}

impl Rate {
    /// How often packets had to wait or were dropped.
    pub async fn held_back(&self) -> Result<u64> {
        let mut sum = 0;
        for (entry, interface) in &self.interfaces {
            let shown = entry
                .run("tc", &["-s", "-j", "qdisc", "show", "dev", interface])
                .await?;
            let disciplines: Vec<serde_json::Value> =
                serde_json::from_str(&shown).context("tc does not print JSON")?;
            sum += disciplines
                .iter()
                .filter(|one| one["kind"] == "tbf")
                .filter_map(|one| one["overlimits"].as_u64())
                .sum::<u64>();
        }
        Ok(sum)
    }

    /// Lets everything through again.
    pub async fn heal(self) -> Result<()> {
        for (entry, interface) in &self.interfaces {
            entry
                .run("tc", &["qdisc", "del", "dev", interface, "root"])
                .await?;
        }
        self.lasting.healed();
        Ok(())
    }
}

async fn iptables(entry: Entry, action: &str, rule: &[String]) -> Result<()> {
    let words: Vec<&str> = ["-w", "-t", "raw", action, FAULTS]
        .into_iter()
        .chain(rule.iter().map(String::as_str))
        .collect();
    entry.run("iptables", &words).await?;
    Ok(())
}
