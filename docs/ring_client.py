#!/usr/bin/env python3
"""A ring client in another language, written from docs/ring-format.md alone.

It reads a ring snapshot from a file or from a node, verifies it, and says where keys live without
asking anybody. With --check it asks the cluster as well and compares.

    pip install xxhash
    ring_client.py --golden ring-format.md                   # the vectors of the format's own page
    ring_client.py --file ring.bin KEY...                    # from a snapshot on disk
    ring_client.py --endpoint http://127.0.0.1:7400 KEY...   # from a node
    ring_client.py --endpoint http://127.0.0.1:7400 --check 10000

Exit codes: 0 all well, 1 the ring or an answer is wrong, 2 usage.
"""

import argparse
import http.client
import json
import random
import re
import sys
import urllib.parse
import uuid
from collections import namedtuple

import xxhash

MAGIC, LAYOUT = b"RINGKV", 1
HASH_SPEC = ("xxh3-64", 0, "raw-bytes", 1)
STATES = ("spare", "joining", "copying", "catching_up", "active", "draining", "removed")
WITHOUT_TOKENS = ("spare", "removed")
LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}")

Node = namedtuple("Node", "id state weight name zone")
Token = namedtuple("Token", "partition rank node index")


class RingError(Exception):
    """The bytes are not a ring that this client can use."""


class Reader:
    """Big-endian integers and short texts, one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        if self.at > len(self.data):
            raise RingError("the snapshot is cut short")
        return self.data[self.at - count : self.at]

    def number(self, count):
        return int.from_bytes(self.take(count), "big")

    def text(self):
        return self.take(self.number(1)).decode("utf-8")


def need(holds, rule):
    if not holds:
        raise RingError(f"malformed snapshot: {rule}")


class Ring:
    """A verified snapshot, and the owners of each of its partitions."""

    def __init__(self, data):
        need(len(data) >= 24 and data[:6] == MAGIC, "it does not begin with RINGKV")
        layout = int.from_bytes(data[6:8], "big")
        if layout != LAYOUT:
            raise RingError(f"layout {layout} is newer than this client ({LAYOUT})")
        self.checksum = data[-16:].hex()
        computed = xxhash.xxh3_128_hexdigest(data[:-16], seed=0)
        if computed != self.checksum:
            raise RingError(f"the checksum is {self.checksum}, the content gives {computed}")
        read = Reader(data[:-16])
        read.take(8)
        self.epoch, self.activated_at = read.number(8), read.number(8)
        self.previous = read.take(16).hex()
        spec = (read.text(), read.number(8), read.text(), read.number(4))
        if spec != HASH_SPEC:
            raise RingError(f"the ring was made for hash {spec}; this client has {HASH_SPEC}")
        self.bits, self.copies = read.number(1), read.number(1)
        self.nodes = [self._node(read) for _ in range(read.number(2))]
        self.tokens = [
            Token(read.number(4), read.number(2), read.number(2), read.number(4))
            for _ in range(read.number(4))
        ]
        need(read.at == len(read.data), "bytes follow the tokens")
        self._verify()
        self.owners = [self._walk(partition) for partition in range(1 << self.bits)]

    @staticmethod
    def _node(read):
        identity, state, weight = uuid.UUID(bytes=read.take(16)), read.number(1), read.number(4)
        need(state < len(STATES), "unknown node state")
        return Node(identity, STATES[state], weight, read.text(), read.text())

    def _verify(self):
        need(self.epoch >= 1, "the epoch is 0")
        need(self.epoch > 1 or self.previous == "0" * 32, "epoch 1 has no predecessor")
        need(self.bits <= 16 and 1 <= self.copies <= 7, "partition bits or copies out of range")
        need(len(self.nodes) <= 4096 and 1 <= len(self.tokens) <= 1 << 20, "too many or too few")
        ids = [node.id.bytes for node in self.nodes]
        need(all(a < b for a, b in zip(ids, ids[1:])), "nodes out of order")
        need(len({node.name for node in self.nodes}) == len(self.nodes), "a name appears twice")
        for node in self.nodes:
            need(LABEL.fullmatch(node.name) and LABEL.fullmatch(node.zone), "illegal name or zone")
            need(node.weight >= 1, "a weight of zero")
        need(all(a < b for a, b in zip(self.tokens, self.tokens[1:])), "tokens out of order")
        for token in self.tokens:
            need(token.partition < 1 << self.bits, "a token beyond the last partition")
            need(token.node < len(self.nodes), "a token of an unknown node")
            need(self.nodes[token.node].state not in WITHOUT_TOKENS, "a token of an idle node")
        held = {(token.node, token.index) for token in self.tokens}
        need(len(held) == len(self.tokens), "a vnode index appears twice")

    def _walk(self, partition):
        """The ring rule of the page, step 3 and 4."""
        start = next((i for i, t in enumerate(self.tokens) if t.partition >= partition), 0)
        clockwise = [token.node for token in self.tokens[start:] + self.tokens[:start]]
        wanted = min(self.copies, len(set(clockwise)))
        chosen = []
        for allowed in range(1, self.copies + 1):
            for node in clockwise:
                if len(chosen) == wanted:
                    break
                in_zone = sum(self.nodes[n].zone == self.nodes[node].zone for n in chosen)
                if node not in chosen and in_zone < allowed:
                    chosen.append(node)
        return [self.nodes[node] for node in sorted(chosen, key=clockwise.index)]

    def locate(self, key):
        """Hash, partition and owners of a key; the primary comes first."""
        digest = xxhash.xxh3_64_intdigest(key, seed=0)
        partition = digest >> (64 - self.bits)
        return digest, partition, self.owners[partition]


class Cluster:
    """The two calls of the HTTP API that matter here, over one connection."""

    def __init__(self, endpoint):
        url = urllib.parse.urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        self.connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=10)

    def get(self, path, accept):
        self.connection.request("GET", path, headers={"Accept": accept})
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RingError(f"GET {path[:80]}: {answer.status} {body[:200]!r}")
        return body

    def ring(self):
        return Ring(self.get("/v1/ring", "application/octet-stream"))

    def locate(self, key):
        path = "/v1/locate/" + urllib.parse.quote(key, safe="")
        return json.loads(self.get(path, "application/json"))


def sample_keys(count, seed=1):
    """Plain, Unicode, awkward and binary keys, the same ones each time."""
    draw = random.Random(seed)
    awkward = [b".", b"..", b"a/../b", b"//", b"%2F", b"a b+c?d#e", b"\x00", b"\xff\xfe", b"x" * 4096]
    scripts = ["grün", "ключ", "键值", "🔑🌍", "e\u0301", "مفتاح", "\u202e"]
    keys = awkward[:count]
    while len(keys) < count:
        kind = len(keys) % 3
        if kind == 0:
            keys.append(f"user/{draw.getrandbits(40)}/profile".encode())
        elif kind == 1:
            keys.append(f"{draw.choice(scripts)}/{draw.getrandbits(32)}".encode())
        else:
            keys.append(draw.randbytes(draw.randint(1, 200)))
    return keys


def check(cluster, count):
    """Locates keys here and there; the number of answers that differ."""
    ring, wrong = cluster.ring(), 0
    for key in sample_keys(count):
        digest, partition, owners = ring.locate(key)
        answer = cluster.locate(key)
        here = (digest, partition, ring.epoch, [str(node.id) for node in owners])
        there = (answer["key_hash"], answer["partition"], answer["epoch"],
                 [owner["node"] for owner in answer["owners"]])
        if here != there:
            wrong += 1
            print(f"{key[:40]!r}: {here} here, {there} there", file=sys.stderr)
    print(f"epoch {ring.epoch}, checksum {ring.checksum} verified, {1 << ring.bits} partitions: "
          f"{count - wrong} of {count} keys are located alike")
    return wrong


def golden(path):
    """Checks this client against the vectors at the end of the format's page."""
    with open(path, encoding="utf-8") as page:
        text = page.read()
    rings = [Ring(bytes.fromhex(block)) for block in re.findall(r"```\n([0-9a-f\n]{200,})```", text)]
    for ring in rings:
        need(ring.checksum in text, "a checksum that the page does not name")
    need(len(rings) == 2 and rings[1].previous == rings[0].checksum, "two rings in a chain")
    rows = re.findall(r"\| (\(empty\)|`[^`]+`) \| ([0-9a-f]{16}) \| (\d+) \| ([n\d ]+) \|", text)
    need(len(rows) >= 4, "four keys or more")
    for name, digest, partition, owners in rows:
        key = b"" if name == "(empty)" else name.strip("`").encode()
        for ring in rings:
            found = ring.locate(key)
            names = " ".join(node.name for node in found[2])
            need((f"{found[0]:016x}", str(found[1]), names) == (digest, partition, owners), f"key {name}")
    damaged = bytearray.fromhex(re.search(r"```\n([0-9a-f\n]{200,})```", text)[1])
    damaged[40] ^= 1
    try:
        Ring(bytes(damaged))
    except RingError:
        print(f"{len(rings)} rings and {len(rows)} keys as on the page; a damaged ring is refused")
        return 0
    raise RingError("a damaged ring was taken")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--file", help="a snapshot's canonical bytes")
    source.add_argument("--endpoint", help="a node, such as http://127.0.0.1:7400")
    source.add_argument("--golden", metavar="PAGE", help="check the vectors of docs/ring-format.md")
    parser.add_argument("--check", type=int, metavar="N", help="compare N keys with the endpoint")
    parser.add_argument("keys", nargs="*", help="keys to locate")
    arguments = parser.parse_args()
    if arguments.check is not None and (arguments.endpoint is None or arguments.check < 1):
        parser.error("--check N needs --endpoint, and N of 1 or more")
    try:
        if arguments.golden:
            return golden(arguments.golden)
        if arguments.check:
            return 1 if check(Cluster(arguments.endpoint), arguments.check) else 0
        if arguments.file:
            with open(arguments.file, "rb") as snapshot:
                ring = Ring(snapshot.read())
        else:
            ring = Cluster(arguments.endpoint).ring()
    except (RingError, OSError, http.client.HTTPException) as error:
        print(f"ring_client: {error}", file=sys.stderr)
        return 1
    print(f"epoch {ring.epoch}, checksum {ring.checksum} verified, "
          f"{len(ring.nodes)} nodes, {1 << ring.bits} partitions x {ring.copies} copies")
    for text in arguments.keys:
        digest, partition, owners = ring.locate(text.encode("utf-8", "surrogateescape"))
        print(f"{text}: hash {digest:016x}, partition {partition}, "
              + ", ".join(f"{node.name} in {node.zone}" for node in owners))
    return 0


if __name__ == "__main__":
    sys.exit(main())
