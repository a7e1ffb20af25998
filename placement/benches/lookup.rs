//! What a lookup costs at the largest size planned for: 120 nodes in three zones, 4096 partitions.
//!
//! `owners` is what a router does per request; `locate` also builds the answer for people. Keys are
//! visited in an order that the table cannot have in cache line by line.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use placement::{
    NodeId, NodeIndex, NodeName, NodeSpec, NodeState, PartitionBits, ReplicationFactor, Ring,
    RingSnapshot, SnapshotParts, TokenPolicy, Topology, Weight, Zone, allocate, key_hash,
};

const NODES: u32 = 120;
const PARTITION_BITS: u8 = 12;
const KEYS: usize = 1 << 14;

fn ring(policy: TokenPolicy) -> Ring {
    let node = |number: u32| NodeSpec {
        id: NodeId::from_u128(u128::from(number) + 1),
        name: NodeName::parse(&format!("n{number}")).expect("a legal name"),
        zone: Zone::parse(&format!("zone-{}", number % 3)).expect("a legal zone"),
        weight: Weight::ONE,
        state: NodeState::Active,
    };
    let topology = Topology::new((0..NODES).map(node).collect()).expect("distinct nodes");
    let partition_bits = PartitionBits::new(PARTITION_BITS).expect("within bounds");
    let replication_factor = ReplicationFactor::DEFAULT;
    let tokens = allocate(&topology, partition_bits, replication_factor, 100, None, policy)
        .expect("there are nodes");
    let parts =
        SnapshotParts { partition_bits, replication_factor, topology, tokens, activated_at_ms: 0 };
    Ring::new(Arc::new(RingSnapshot::publish(parts, None).expect("sound tokens")))
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
        let bytes = ring.memory_bytes();
        eprintln!("{name}: snapshot and table take {bytes} bytes");
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
    targets = lookups, rings
}
criterion_main!(benches);
