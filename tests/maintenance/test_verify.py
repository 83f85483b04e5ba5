from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.synthetic import entry, fill, place
from tritonstore.backends.files import FilesBackend
from tritonstore.backends.memory import MemoryBackend
from tritonstore.entry import encode
from tritonstore.errors import StoreError
from tritonstore.maintenance.verify import findings


@pytest.fixture
def digests(tmp_path: Path) -> list[str]:
    return fill(str(tmp_path), [entry(number) for number in range(20)])


def test_all_is_well(tmp_path: Path, digests: list[str]) -> None:
    found = list(findings(FilesBackend(str(tmp_path))))
    assert {each.digest for each in found} == set(digests)
    assert {each.problem for each in found} == {""}


@pytest.mark.parametrize("position", [0, 8, 12, 30, 45, -1])
def test_a_flipped_bit_anywhere_is_found_and_removed(tmp_path: Path, digests: list[str], position: int) -> None:
    path = Path(place(str(tmp_path), digests[3]))
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    backend = FilesBackend(str(tmp_path))
    bad = [each for each in findings(backend) if each.problem]
    assert [(each.digest, each.removed) for each in bad] == [(digests[3], False)]
    assert path.exists()
    assert [each.removed for each in findings(backend, fix=True) if each.problem] == [True]
    assert not path.exists()
    assert len(list(findings(backend))) == 19


def test_a_sample_is_that_many_of_them(tmp_path: Path, digests: list[str]) -> None:
    backend = FilesBackend(str(tmp_path))
    samples = [{each.digest for each in findings(backend, sample=5)} for _ in range(40)]
    assert {len(sample) for sample in samples} == {5}
    assert set().union(*samples) == set(digests)  # each comes up: it stays away 40 times with a chance of 1 in 100,000
    assert {each.digest for each in findings(backend, sample=100)} == set(digests)


def test_good_bytes_that_came_meanwhile_stay() -> None:
    made = entry(1)

    class Renewed(MemoryBackend):
        reads = 0

        def get(self, digest: str) -> bytes | None:
            self.reads += 1
            return b"damage" if self.reads == 1 else encode(made)

    backend = Renewed()
    backend.put(made.digest, b"damage")
    (found,) = findings(backend, fix=True)
    assert found.problem
    assert not found.removed
    assert backend.get(made.digest) == encode(made)


def test_what_cannot_be_read_is_no_damage() -> None:
    class Locked(MemoryBackend):
        def get(self, digest: str) -> bytes | None:
            raise StoreError("no permission", self.url, "get")

    backend = Locked()
    backend.put(entry(1).digest, encode(entry(1)))
    (found,) = findings(backend, fix=True)
    assert found.problem == "cannot be read: no permission"
    assert not found.removed
    assert len(list(backend.scan())) == 1
