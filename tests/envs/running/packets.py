"""Groups and packets made by hand."""

from envs.delivery.packing import Packet
from envs.records.atif import Place
from envs.running.group import Group
from envs.running.outbox import Outbox
from envs.tasks.sampler import Draw
from envs.types import Task

PLACE = Place(0, 10, 7)


def packet(number, *, rows=4, step=0):
    return Packet(f"p{number}", step, {number: rows}, b"x" * 500)


def a_task(number):
    return Draw(Task(f"task-{number}", ""))


async def draw(journal):
    return await Group.draw(journal, a_task)


async def fill_outbox(journal, numbers):
    outbox = Outbox(journal)
    for number in numbers:
        group = await draw(journal)
        assert group.number == number
        await outbox.add(group, [packet(number)], [])
    return outbox
