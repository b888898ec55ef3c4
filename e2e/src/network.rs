//! The network of a bed: a bridge in the hub, a cable from it to every node, and one to this host by which the API
//! server is reached. No namespace has a default route; what would leave all the same is dropped and counted.
//!
//! Inside, all beds have the same addresses: they cannot meet.

use std::fs;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::bed_dir::BedDir;
use crate::command;
use crate::namespaces::Entry;

/// The bridge, in the hub.
const BRIDGE: &str = "bridge";
/// The hub's end of the cable to this host.
const UPLINK: &str = "uplink";
/// What the interfaces of beds on this host are called; a number below [`SLOTS`] follows.
pub const HOST_INTERFACE: &str = "eobed";
const SLOTS: u8 = 250;
/// The chain of the rules that keep packets in.
const GUARD: &str = "BED-LEAVES";
/// The chain of the rules that lose packets on purpose.
pub(crate) const FAULTS: &str = "BED-FAULTS";
/// All nodes and the control plane.
const NODES: &str = "10.88.0.0/24";
/// All pods.
pub const PODS: &str = "10.244.0.0/16";
/// All services.
pub const SERVICES: &str = "10.96.0.0/16";
/// The control plane as nodes and pods see it.
pub const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
/// The service of the API server: the first of [`SERVICES`].
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The service of the cluster's DNS.
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// The interface of a node.
pub const NODE_INTERFACE: &str = "eth0";

/// Which node: 1, 2, 3.
pub type Number = u8;

/// The address of a node.
pub fn node_address(node: Number) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 0, 10 + node)
}

/// The pods of a node.
pub fn pods_of(node: Number) -> String {
    format!("10.244.{node}.0/24")
}

/// The hub's end of a node's cable.
pub fn port_of(node: Number) -> String {
    format!("port{node}")
}

/// The cable between this host and a hub.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uplink {
    /// The control plane as this host sees it.
    pub(crate) address: Ipv4Addr,
}

/// Wires the hub: bridge, routes to the pods of `nodes`, the cable to this host.
pub(crate) async fn wire_hub(bed: &BedDir, hub: Entry, nodes: &[Number]) -> Result<Uplink> {
    let slot = take_slot(hub).await?;
    bed.record_cable(&format!("{HOST_INTERFACE}{slot}"))?;
    let host = Ipv4Addr::new(198, 18, slot, 1);
    let address = Ipv4Addr::new(198, 18, slot, 2);
    batch(
        Command::new("ip"),
        &[
            format!("addr add {host}/30 dev {HOST_INTERFACE}{slot}"),
            format!("link set {HOST_INTERFACE}{slot} up"),
        ],
    )
    .await?;
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("link add {BRIDGE} type bridge"),
        format!("addr add {CONTROL_PLANE}/24 dev {BRIDGE}"),
        format!("link set {BRIDGE} up"),
        format!("addr add {address}/30 dev {UPLINK}"),
        format!("link set {UPLINK} up"),
    ];
    lines.extend(
        nodes
            .iter()
            .map(|node| format!("route add {} via {}", pods_of(*node), node_address(*node))),
    );
    batch(hub.command("ip")?.into(), &lines).await?;
    guard(hub, &["198.18.0.0/15"]).await?;
    Ok(Uplink { address })
}

/// Wires a node: its cable, its routes to the other nodes' pods, forwarding.
pub(crate) async fn wire_node(hub: Entry, node: Entry, number: Number, all: &[Number]) -> Result<()> {
    let port = port_of(number);
    batch(
        hub.command("ip")?.into(),
        &[
            format!(
                "link add {port} type veth peer name {NODE_INTERFACE} netns {}",
                node.keeper().pid()
            ),
            format!("link set {port} master {BRIDGE} up"),
        ],
    )
    .await?;
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("addr add {}/24 dev {NODE_INTERFACE}", node_address(number)),
        format!("link set {NODE_INTERFACE} up"),
        // kube-proxy turns these into others; what it leaves alone ends at the control plane, which forwards nothing.
        format!("route add {SERVICES} via {CONTROL_PLANE}"),
    ];
    lines.extend(
        all.iter()
            .filter(|other| **other != number)
            .map(|other| format!("route add {} via {}", pods_of(*other), node_address(*other))),
    );
    batch(node.command("ip")?.into(), &lines).await?;
    node.run(
        "sysctl",
        &[
            "-qw",
            "net.ipv4.ip_forward=1",
            "net.bridge.bridge-nf-call-iptables=1",
        ],
    )
    .await?;
    guard(node, &[]).await
}

/// Takes a node's cable out of the bridge: nobody is told, nothing arrives any more.
pub(crate) async fn unplug(hub: Entry, node: Number) -> Result<()> {
    hub.run("ip", &["link", "set", &port_of(node), "nomaster"])
        .await?;
    Ok(())
}

/// Puts it back.
pub(crate) async fn plug(hub: Entry, node: Number) -> Result<()> {
    hub.run("ip", &["link", "set", &port_of(node), "master", BRIDGE])
        .await?;
    Ok(())
}

/// How many packets tried to leave the bed from this namespace.
pub async fn leaving(entry: Entry) -> Result<u64> {
    let rules = entry
        .run("iptables", &["-w", "-t", "raw", "-nvxL", GUARD])
        .await?;
    let dropped = dropped(&rules).with_context(|| format!("{GUARD} drops nothing:\n{rules}"))?;
    let counters = fs::read_to_string(format!("/proc/{}/net/snmp", entry.keeper().pid()))
        .context("cannot read a namespace's IP counters")?;
    let unroutable = unroutable(&counters).context("the IP counters do not tell OutNoRoutes")?;
    Ok(dropped + unroutable)
}

/// An interface's name is a reservation: of two beds that want the same, one is refused.
async fn take_slot(hub: Entry) -> Result<u8> {
    for slot in 0..SLOTS {
        let name = format!("{HOST_INTERFACE}{slot}");
        let mut add = Command::new("ip");
        add.args([
            "link", "add", &name, "type", "veth", "peer", "name", UPLINK, "netns",
        ])
        .arg(hub.keeper().pid().to_string());
        let output = command::output(add, "").await?;
        if output.status.success() {
            return Ok(slot);
        }
        if !String::from_utf8_lossy(&output.stderr).contains("File exists") {
            command::printed(output, "ip link add")?;
        }
    }
    bail!("{SLOTS} beds run on this host already")
}

/// Raw comes before everything kube-proxy and CNI do, so that nothing they accept gets around it.
async fn guard(entry: Entry, also: &[&str]) -> Result<()> {
    let mut rules = vec!["*raw".to_owned()];
    for chain in [FAULTS, GUARD] {
        rules.extend([
            format!(":{chain} - [0:0]"),
            format!("-A PREROUTING -j {chain}"),
            format!("-A OUTPUT -j {chain}"),
        ]);
    }
    let known = [NODES, PODS, SERVICES, "127.0.0.0/8", "224.0.0.0/4"];
    rules.extend(
        known
            .iter()
            .chain(also)
            .map(|destination| format!("-A {GUARD} -d {destination} -j RETURN")),
    );
    rules.extend([format!("-A {GUARD} -j DROP"), "COMMIT\n".to_owned()]);
    entry
        .run_with_input("iptables-restore", &["-w", "--noflush"], &rules.join("\n"))
        .await?;
    entry
        .run(
            "sysctl",
            &[
                "-qw",
                "net.ipv6.conf.all.disable_ipv6=1",
                // What a killed process has not finished saying is not repeated for minutes to those killed with it,
                // which would keep the namespace that long.
                "net.ipv4.tcp_orphan_retries=1",
            ],
        )
        .await?;
    Ok(())
}

async fn batch(mut ip: Command, lines: &[String]) -> Result<()> {
    ip.args(["-batch", "-"]);
    command::succeed(ip, &(lines.join("\n") + "\n"))
        .await
        .with_context(|| lines.join("; "))?;
    Ok(())
}

/// From `iptables -nvxL`: packets, bytes, target.
fn dropped(rules: &str) -> Option<u64> {
    rules.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let packets = words.next()?.parse().ok()?;
        (words.nth(1)? == "DROP").then_some(packets)
    })
}

/// From `/proc/net/snmp`: a line of names and one of values.
fn unroutable(counters: &str) -> Option<u64> {
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let names = lines.next()?.split(' ');
    let mut values = lines.next()?.split(' ');
    names
        .zip(&mut values)
        .find_map(|(name, value)| (name == "OutNoRoutes").then(|| value.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_the_drop_rule_is_found_among_those_of_others() {
        let rules = "Chain BED-LEAVES (2 references)\n\
            \x20   pkts      bytes target     prot opt in     out     source               destination\n\
            \x20     12      1000 RETURN     0    --  *      *       0.0.0.0/0            10.88.0.0/24\n\
            \x20      7       420 DROP       0    --  *      *       0.0.0.0/0            0.0.0.0/0\n";
        assert_eq!(dropped(rules), Some(7));
        assert_eq!(dropped("Chain BED-LEAVES (2 references)\n"), None);
    }

    #[test]
    fn packets_without_a_route_are_counted() {
        let counters =
            "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 1 2 33 4\nIcmp: OutNoRoutes\n";
        assert_eq!(unroutable(counters), Some(33));
    }

    #[test]
    fn nodes_differ_in_address_and_pods() {
        assert_eq!(node_address(2).to_string(), "10.88.0.12");
        assert_eq!(pods_of(2), "10.244.2.0/24");
        assert_ne!(node_address(3), node_address(2));
    }
}
