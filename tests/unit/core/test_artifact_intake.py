"""Artifacts from a program's chunk to seed 000's shape: all six part types, versions, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aiosd.core.artifacts import MAX_INLINE, BlobError, BlobStore
from aiosd.errors import AiosError, ErrorKind
from tests.unit.core.rig import OTHER, Core, core, eventually, play

if TYPE_CHECKING:
    from pathlib import Path

    from aiosd.model.jsontext import JsonObject, JsonValue
    from tests.unit.core.fakelauncher import FakeRun

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


async def produced(aios: Core, *payloads: JsonObject) -> tuple[str, list[dict[str, JsonValue]]]:
    """Run a program that hands these over; the task and its artifacts as they are answered."""

    async def program(run: FakeRun) -> None:
        await run.go()
        for payload in payloads:
            run.say("artifact", payload)
        run.end(0)

    aios.launcher.program = program
    task = await aios.create()
    await aios.ended(task)
    return task, await listed(aios, task)


async def listed(aios: Core, task: str) -> list[dict[str, JsonValue]]:
    """The artifacts of a task as they are answered."""
    found = (await aios.invoke("artifact.list", {"task_id": task}))["artifacts"]
    assert isinstance(found, list)
    return [dict(one) for one in found if isinstance(one, dict)]


SECRET = b"the other user's secret"


async def opened(aios: Core, artifact: object) -> bytes:
    """The content of an artifact's first part."""
    body = await aios.reply("artifact.open", {"artifact_id": str(artifact), "part": 0})
    (fd,) = body.fds
    with os.fdopen(fd, "rb") as file:
        return file.read()


@pytest.mark.parametrize("kind", ["text", "data", "file", "image"])
def test_a_digest_opens_nothing_that_was_not_handed_over(tmp_path: Path, kind: str) -> None:
    """Whoever knows what somebody's file hashes to has not seen the file: not by naming it, in whatever part."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:

            async def keeps(run: FakeRun) -> None:
                await run.go()
                run.say("artifact", {"key": "mine", "parts": [{"file": {"blob": run.blob(SECRET)}}]})
                run.end(0)

            aios.launcher.program = keeps
            task = await aios.create()
            await aios.ended(task)
            (kept,) = await listed(aios, task)
            assert await opened(aios, kept["id"]) == SECRET

            digest = hashlib.sha256(SECRET).hexdigest()
            claims: list[JsonObject] = [
                {kind: {"sha256": digest, "size": len(SECRET), "uri": "aios-artifact:x/0"}},
                {kind: {"blob": {"offset": 0, "size": len(SECRET), "sha256": digest}}},
                {kind: {"blob": {"offset": 0, "size": 0, "sha256": digest}}},
            ]
            payloads: list[JsonObject] = [{"key": str(key), "parts": [part]} for key, part in enumerate(claims)]
            _, found = await produced(aios, *payloads)
            assert len(found) == len(claims)
            for one in found:
                try:
                    content = await opened(aios, one["id"])
                except AiosError as error:
                    assert error.kind is ErrorKind.ARTIFACT_NOT_FOUND
                else:
                    assert SECRET not in content

    play(scenario())


def test_the_six_part_types(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:

            async def program(run: FakeRun) -> None:
                await run.go()
                parts: list[JsonValue] = [
                    {"text": "## 价格对比结果"},
                    {"data": {"jd": {"price": 299}}},
                    {"file": {"blob": run.blob(b"report"), "name": "r.txt", "mime_type": "text/plain"}},
                    {"image": {"blob": run.blob(PNG), "name": "c.png", "mime_type": "image/png"}},
                    {"audio": {"blob": run.blob(b"RIFF"), "duration_ms": 5}},
                    {"video": {"blob": run.blob(b"ftyp"), "duration_ms": 7}},
                ]
                run.say("artifact", {"key": "report", "name": "价格对比报告", "type": "report",
                                     "mime_type": "application/json", "parts": parts})  # fmt: skip
                run.end(0)

            aios.launcher.program = program
            task = await aios.create()
            await aios.ended(task)
            (event,) = [one for one in await aios.log(task) if one.kind == "task.artifact"]
            told = event.payload["artifact"]
            assert isinstance(told, dict)
            assert (told["name"], told["type"]) == ("价格对比报告", "report")
            answer = await aios.invoke("artifact.get", {"artifact_id": told["id"]})
            artifact = answer["artifact"]
            assert isinstance(artifact, dict)
            assert artifact["metadata"] == {"source_task": task, "version": 1}
            parts = artifact["parts"]
            assert isinstance(parts, list)
            kinds = [part["type"] for part in parts if isinstance(part, dict)]
            assert kinds == ["text", "data", "file", "image", "audio", "video"]
            text, data, file, image, audio, _ = (part for part in parts if isinstance(part, dict))
            assert text["text"] == "## 价格对比结果"
            assert data["data"] == {"jd": {"price": 299}}
            for part, kind in ((file, "file"), (image, "image")):
                inner = part[kind]
                assert isinstance(inner, dict)
                assert str(inner["uri"]).startswith(f"aios-artifact:{told['id']}/")
                assert "blob" not in inner
            assert isinstance(file["file"], dict)
            assert (file["file"]["size"], file["file"]["mime_type"]) == (6, "text/plain")
            assert isinstance(audio["audio"], dict)
            assert audio["audio"]["duration_ms"] == 5
            expected = ("## 价格对比结果".encode(), None, b"report", PNG, b"RIFF", b"ftyp")
            for index, content in enumerate(expected):
                reply = await aios.reply("artifact.open", {"artifact_id": told["id"], "part": index})
                (descriptor,) = reply.fds
                read = os.read(descriptor, 4096)
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.write(descriptor, b"x")
                os.close(descriptor)
                assert content is None or read == content
                assert reply.body["size"] == len(read)
            error = await aios.refused("artifact.open", {"artifact_id": told["id"], "part": 6})
            assert (error.kind.value.code, error.field) == (-32602, "part")

    play(scenario())


def test_a_key_again_is_the_next_version_or_more_of_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            _, found = await produced(
                aios,
                {"key": "k", "name": "n", "parts": [{"text": "1"}]},
                {"key": "k", "name": "n", "parts": [{"text": "2"}]},
                {"key": "k", "name": "n", "parts": [{"text": "3"}], "append": True},
                {"name": "other", "parts": []},
            )
            assert len(found) == 2
            assert found[0]["metadata"] == {"source_task": found[0]["metadata"]["source_task"], "version": 3}  # type: ignore[index,call-overload]
            assert [part["text"] for part in found[0]["parts"]] == ["2", "3"]  # type: ignore[index,union-attr,call-overload]

    play(scenario())


def test_a_streamed_artifact_tells_where_each_piece_begins_and_which_is_the_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            await produced(
                aios,
                {"key": "k", "parts": [{"text": "a"}, {"text": "b"}], "last_chunk": False},
                {"key": "k", "parts": [{"text": "c"}], "append": True, "last_chunk": False},
                {"key": "k", "parts": [{"text": "d"}], "append": True, "last_chunk": True},
                {"key": "whole", "parts": [{"text": "e"}]},
            )
            told = [event.payload for event in aios.events if event.kind == "task.artifact"]
            pieces = [(one.get("append"), one.get("index"), one.get("last_chunk")) for one in told]
            assert pieces == [(False, 0, False), (True, 2, False), (True, 3, True), (None, None, None)]

    play(scenario())


def test_what_is_too_much_is_refused_and_said_and_the_task_runs_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            aios.settings.current = replace(
                aios.settings.current, artifact_max_bytes=10_000, artifact_quota_bytes=20_000
            )

            async def program(run: FakeRun) -> None:
                await run.go()
                run.say("artifact", {"key": "big", "parts": [{"file": {"blob": run.blob(b"x" * 10_001)}}]})
                run.say("artifact", {"key": "one", "parts": [{"file": {"blob": run.blob(b"1" * 9_000)}}]})
                run.say("artifact", {"key": "two", "parts": [{"file": {"blob": run.blob(b"2" * 9_000)}}]})
                run.say("artifact", {"key": "three", "parts": [{"file": {"blob": run.blob(b"3" * 9_000)}}]})
                run.say("artifact", {"key": "text", "parts": [{"text": "t" * 9_000}]})
                run.end(0)

            aios.launcher.program = program
            task = await aios.create()
            assert (await aios.ended(task)).status == "completed"
            found = (await aios.invoke("artifact.list", {"task_id": task}))["artifacts"]
            assert isinstance(found, list)
            by_name = {str(one["name"]): one for one in found if isinstance(one, dict)}
            assert set(by_name) == {"big", "one", "two", "three"}
            for name, word in (("big", "artifact_max_bytes"), ("three", "artifact_quota_bytes")):
                assert word in str(by_name[name]["parts"])
                error = await aios.refused("artifact.open", {"artifact_id": by_name[name]["id"]})
                assert error.kind.value.code == -32109
            told = [event.payload for event in await aios.log(task) if event.payload.get("level") == "warning"]
            assert len(told) == 1
            assert "text" in str(told[0]["message"])
            used = await aios.database.read(
                lambda db: db.execute("SELECT size FROM artifact_usage WHERE uid = 1000").fetchone()[0]
            )
            assert used == 18_000
            aios.settings.current = replace(aios.settings.current, artifact_quota_bytes=1 << 40)
            pieces: list[JsonObject] = [
                {"key": "grows", "parts": [{"text": "x" * 200_000}], "append": True} for _ in range(8)
            ]
            _, grown = await produced(aios, *pieces)
            assert isinstance(grown[0]["size"], int)
            assert MAX_INLINE - 200_000 < grown[0]["size"] <= MAX_INLINE

    play(scenario())


@pytest.mark.parametrize(
    "payload",
    [
        {}, {"parts": "no"}, {"parts": [1, None, "x", []]}, {"parts": [{"file": {"path": "../x"}}]},
        {"parts": [{"file": "x"}]}, {"parts": [{"file": {"blob": {"offset": -1, "size": 1, "sha256": "0" * 64}}}]},
        {"parts": [{"file": {"blob": {"offset": 0, "size": 1, "sha256": "../../etc/passwd"}}}]},
        {"parts": [{"image": {"blob": {"offset": 0, "size": 1 << 40, "sha256": "0" * 64}}}]},
        {"key": 5, "name": ["x"], "type": None, "parts": [{"text": {"a": 1}}]}, {"key": "\u202e", "name": "\0"},
    ],
)  # fmt: skip
def test_nonsense_harms_nobody(tmp_path: Path, payload: JsonObject) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            task, found = await produced(aios, payload)
            assert (await aios.task(task)).status == "completed"
            for one in found:
                reply = None
                if one["parts"]:
                    try:
                        reply = await aios.reply("artifact.open", {"artifact_id": one["id"]})
                    except Exception as error:  # noqa: BLE001  which kind is looked at
                        assert getattr(error, "kind", None) is not None, error
                for descriptor in reply.fds if reply else ():
                    os.close(descriptor)

    play(scenario())


def test_content_that_is_not_what_its_digest_says_is_not_kept(tmp_path: Path) -> None:
    source = tmp_path / "blobs"
    source.write_bytes(b"abc")
    store = BlobStore(tmp_path / "store")
    for offset, size, digest in ((0, 3, "0" * 64), (0, 4, "0" * 64), (5, 1, "0" * 64), (0, 3, "ABC"), (0, 3, "x" * 64)):
        with pytest.raises(BlobError):
            store.take(source, offset, size, digest)
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


def contents(root: Path) -> set[bytes]:
    """What the daemon keeps."""
    return {path.read_bytes() for path in (root / "blobs").glob("??/*")}


def test_what_was_refused_or_is_of_an_earlier_version_is_not_kept(tmp_path: Path) -> None:
    """It is in no quota: a program must not fill the disk with it."""

    async def scenario() -> None:
        async with core(tmp_path) as aios:

            async def program(run: FakeRun) -> None:
                await run.go()
                for _ in range(5):
                    run.say("artifact", {"key": "long", "parts": [{"text": "x" * 200_000}], "append": True})
                parts: list[JsonValue] = [{"text": "x" * 200_000}, {"file": {"blob": run.blob(b"refused")}}]
                run.say("artifact", {"key": "long", "parts": parts, "append": True})
                for content in (b"first", b"second", b"third"):
                    run.say("artifact", {"key": "k", "parts": [{"file": {"blob": run.blob(content)}}]})
                more: JsonValue = {"file": {"blob": run.blob(b"more")}}
                run.say("artifact", {"key": "k", "parts": [more], "append": True})
                run.end(0)

            aios.launcher.program = program
            task = await aios.create()
            await aios.ended(task)
            assert await asyncio.to_thread(contents, tmp_path) == {b"third", b"more"}
            held = await aios.database.read(
                lambda db: [tuple(row) for row in db.execute("SELECT size, refs FROM blobs ORDER BY size")]
            )
            assert held == [(4, 1), (5, 1)]

    play(scenario())


def test_who_opens_an_artifact_as_its_next_version_comes_gets_that(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with core(tmp_path) as aios:
            go_on = asyncio.Event()

            async def program(run: FakeRun) -> None:
                await run.go()
                run.say("artifact", {"key": "k", "parts": [{"file": {"blob": run.blob(b"first")}}]})
                await go_on.wait()
                run.say("artifact", {"key": "k", "parts": [{"file": {"blob": run.blob(b"second")}}]})
                run.end(0)

            aios.launcher.program = program
            task = await aios.create()
            await eventually(lambda: any(event.kind == "task.artifact" for event in aios.events))
            (event,) = [one for one in aios.events if one.kind == "task.artifact"]
            told = event.payload["artifact"]
            assert isinstance(told, dict)

            async def meanwhile() -> None:
                go_on.set()
                await aios.ended(task)

            aios.authority.meanwhile = meanwhile
            reply = await aios.reply("artifact.open", {"artifact_id": told["id"]}, OTHER)
            assert await asyncio.to_thread(os.read, reply.fds[0], 10) == b"second"
            os.close(reply.fds[0])

    play(scenario())


def test_content_is_not_removed_while_somebody_is_about_to_refer_to_it(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "store")
    (tmp_path / "blobs").write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    asked: list[str] = []

    async def let_go() -> bool:
        asked.append("let go")
        await asyncio.sleep(0)
        return True

    async def refers() -> bool:
        async with store.pinned({digest}):
            asked.append("pinned")
            await asyncio.to_thread(store.take, tmp_path / "blobs", 0, 7, digest)
            await store.remove(digest, let_go)
            return store.path(digest).exists()

    async def scenario() -> None:
        assert await refers()
        assert asked == ["pinned"], "who is about to refer to it is not asked to let go"
        removing = asyncio.create_task(store.remove(digest, let_go))
        await asyncio.sleep(0)
        assert await refers(), "who comes as it goes has it copied again"
        await removing
        assert asked == ["pinned", "let go", "pinned"]

    asyncio.run(scenario())
