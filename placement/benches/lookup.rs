//! What a lookup costs at the largest size planned for: 120 nodes in three zones, 4096 partitions; and
//! what it costs with other schemes.
//!
//! `owners` is what a router does per request; `locate` also builds the answer for people. Keys are
//! visited in an order that the table cannot have in cache line by line.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use placement::simulate::RingRules;
use placement::simulate::strategy::{Placer, Strategy};
use placement::{
    NodeId, NodeIndex, NodeName, NodeSpec, NodeState, PartitionBits, ReplicationFactor, Ring,
    RingSnapshot, TokenPolicy, Topology, Weight, Zone, key_hash,
};

const NODES: u32 = 120;
const PARTITION_BITS: u8 = 12;
const KEYS: usize = 1 << 14;

const VNODES: u32 = 100;

fn nodes() -> Vec<NodeSpec> {
    let node = |number: u32| NodeSpec {
        id: NodeId::from_u128(u128::from(number) + 1),
        name: NodeName::parse(&format!("n{number}")).expect("a legal name"),
        zone: Zone::parse(&format!("zone-{}", number % 3)).expect("a legal zone"),
        weight: Weight::ONE,
        state: NodeState::Active,
    };
    (0..NODES).map(node).collect()
}

fn rules(policy: TokenPolicy) -> RingRules {
    RingRules {
        partition_bits: PartitionBits::new(PARTITION_BITS).expect("within bounds"),
        replication_factor: ReplicationFactor::DEFAULT,
        policy,
        vnodes_per_node: VNODES,
    }
}

fn ring(policy: TokenPolicy) -> Ring {
    let nodes = Topology::new(nodes()).expect("distinct nodes");
    rules(policy).ring(nodes, None).expect("there are nodes")
}

/// Loads every owner, so that a lookup is not only the computation of an address.
fn read(owners: &[NodeIndex]) {
    for owner in owners {
        black_box(*owner);
    }
}

fn lookups(criterion: &mut Criterion) {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user/{number:08}/profile")).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| key_hash(key.as_bytes())).collect();
    for (name, policy) in [("balanced", TokenPolicy::Balanced), ("random", TokenPolicy::Random)] {
        let ring = ring(policy);
        let (document, memory) = (ring.snapshot().canonical_bytes().len(), ring.memory_bytes());
        eprintln!("{name}: the document has {document} bytes, snapshot and table take {memory}");
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(KEYS as u64));
        group.bench_function("owners, hash included", |bencher| {
            bencher.iter(|| {
                for key in &keys {
                    read(ring.owners(ring.partition_of(black_box(key.as_bytes()))));
                }
            });
        });
        group.bench_function("owners, hash excluded", |bencher| {
            bencher.iter(|| {
                for hash in &hashes {
                    let partition = ring.partition_bits().partition_of(black_box(*hash));
                    read(ring.owners(partition));
                }
            });
        });
        group.bench_function("locate", |bencher| {
            bencher.iter(|| {
                for key in &keys {
                    black_box(ring.locate(black_box(key.as_bytes())));
                }
            });
        });
        group.finish();
    }
}

/// One owner each, the hash given.
fn strategies(criterion: &mut Criterion) {
    let hashes: Vec<u64> = (0..1024_u64).map(|number| key_hash(&number.to_be_bytes())).collect();
    let mut group = criterion.benchmark_group("strategies");
    group.throughput(Throughput::Elements(hashes.len() as u64));
    for strategy in Strategy::ALL {
        let placer = Placer::new(strategy, &nodes(), &rules(TokenPolicy::Balanced));
        let placer = placer.expect("there are nodes");
        group.bench_function(strategy.name(), |bencher| {
            bencher.iter(|| {
                for hash in &hashes {
                    black_box(placer.place(black_box(*hash)));
                }
            });
        });
    }
    group.finish();
}

fn rings(criterion: &mut Criterion) {
    criterion.bench_function("ring from a verified snapshot", |bencher| {
        let bytes = ring(TokenPolicy::Balanced).snapshot().canonical_bytes();
        bencher.iter(|| {
            let snapshot = RingSnapshot::from_canonical_bytes(black_box(&bytes));
            black_box(Ring::new(Arc::new(snapshot.expect("these bytes are sound"))))
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = lookups, strategies, rings
}
criterion_main!(benches);
