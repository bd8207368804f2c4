"""Golden bytes: each request and each answer as it stands on the wire, and read back.

The hex is the header frame: a msgpack map, its first key the tag. A change of these bytes is a
change of the protocol: it needs another first frame than `RPS1`, not another hex here.
"""

from __future__ import annotations

from typing import get_args

import pytest

from reliable_pubsub.common.batch import Batch, crc32, decode_batch, encode_batch
from reliable_pubsub.common.messages import (
    Abort,
    AbortAck,
    Ack,
    AnyReply,
    AnyRequest,
    BatchHeader,
    Busy,
    Bye,
    ByeAck,
    Commit,
    CommitAck,
    CommitterStatus,
    Conflict,
    Dead,
    DeadAck,
    Delivered,
    Delivery,
    Duplicate,
    Fenced,
    Full,
    Gap,
    Get,
    Hello,
    HelloAck,
    History,
    IngressStatus,
    Limit,
    Listeners,
    ListenersReport,
    LogChanged,
    Lost,
    Malformed,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    OutOfRange,
    Part,
    PublisherStatus,
    PushStatus,
    Put,
    PutAck,
    Ring,
    RingStatus,
    Stage,
    StageAck,
    StageLost,
    StagingStatus,
    Stale,
    Start,
    Status,
    StatusReport,
    StorageFull,
    Sub,
    SubAck,
    SubscriptionStatus,
    Terms,
    TopicPosition,
    TopicReceipt,
    TopicStatus,
    Truncated,
    Unsub,
    UnsubAck,
)
from reliable_pubsub.common.wire import (
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)

BODY = bytes.fromhex("94 91 c4 05 68656c6c6f c0 c0 c0")  # one message, "hello"

REQUESTS: dict[str, tuple[AnyRequest, str]] = {
    "HELLO": (
        Hello(
            client="sensor-1",
            epoch=2,
            request=1,
            role="publisher",
            nonce=b"12345678",
            topics=("t",),
        ),
        "87a476657262a548454c4c4fa6636c69656e74a873656e736f722d31a565706f636802a772657175"
        "65737401a4726f6c65a97075626c6973686572a56e6f6e6365c4083132333435363738a6746f7069"
        "637391a174",
    ),
    "PUT": (
        Put(
            client="sensor-1",
            epoch=2,
            request=3,
            topic="t",
            first_sequence=300,
            count=1,
            crc=crc32(BODY),
        ),
        "89a476657262a3505554a6636c69656e74a873656e736f722d31a565706f636802a7726571756573"
        "7403a5746f706963a174ae66697273745f73657175656e6365cd012ca5636f756e7401a3637263ce"
        "6c5653c6a3716f7302",
    ),
    "STAGE": (
        Stage(
            client="sensor-1",
            epoch=2,
            request=3,
            transaction=9,
            task=1,
            attempt=b"12345678",
            chunk=0,
            topic="t",
            count=1,
            crc=crc32(BODY),
        ),
        "8ca476657262a55354414745a6636c69656e74a873656e736f722d31a565706f636802a772657175"
        "65737403ab7472616e73616374696f6e09a47461736b01a7617474656d7074c40831323334353637"
        "38a56368756e6b00a5746f706963a174a5636f756e7401a3637263ce6c5653c6ae66697273745f73"
        "657175656e6365c0",
    ),
    "COMMIT": (
        Commit(
            client="sensor-1",
            epoch=2,
            request=4,
            transaction=9,
            parts=(Part(1, b"12345678", 1),),
            digest=b"87654321",
        ),
        "87a476657262a6434f4d4d4954a6636c69656e74a873656e736f722d31a565706f636802a7726571"
        "7565737404ab7472616e73616374696f6e09a57061727473919301c408313233343536373801a664"
        "6967657374c4083837363534333231",
    ),
    "ABORT": (
        Abort(client="sensor-1", epoch=2, request=5, transaction=9),
        "85a476657262a541424f5254a6636c69656e74a873656e736f722d31a565706f636802a772657175"
        "65737405ab7472616e73616374696f6e09",
    ),
    "DELIVERY": (
        Delivery(client="sensor-1", epoch=2, request=4, topic="t", offset=41, log="x.1"),
        "87a476657262a844454c4956455259a6636c69656e74a873656e736f722d31a565706f636802a772"
        "65717565737404a5746f706963a174a66f666673657429a36c6f67a3782e31",
    ),
    "GET": (
        Get(
            client="display-1", epoch=1, request=7, topic="t", generation=1, boot="b", cursor=70000
        ),
        "8aa476657262a3474554a6636c69656e74a9646973706c61792d31a565706f636801a77265717565"
        "737407a5746f706963a174aa67656e65726174696f6e01a4626f6f74a162a6637572736f72ce0001"
        "1170ac6d657373616765735f6d617801a962797465735f6d6178ce00100000",
    ),
    "ACK": (
        Ack(client="display-1", epoch=1, request=8, topic="t", generation=1, boot="b", cursor=12),
        "88a476657262a341434ba6636c69656e74a9646973706c61792d31a565706f636801a77265717565"
        "737408a5746f706963a174aa67656e65726174696f6e01a4626f6f74a162a6637572736f720c",
    ),
    "DEAD": (
        Dead(
            client="display-1",
            epoch=1,
            request=8,
            topic="t",
            generation=1,
            boot="b",
            cursor=12,
            crc=crc32(BODY),
        ),
        "89a476657262a444454144a6636c69656e74a9646973706c61792d31a565706f636801a772657175"
        "65737408a5746f706963a174aa67656e65726174696f6e01a4626f6f74a162a6637572736f720ca3"
        "637263ce6c5653c6",
    ),
    "SUB": (
        Sub(client="display-1", epoch=1, request=2, topic="t", control=1),
        "8ba476657262a3535542a6636c69656e74a9646973706c61792d31a565706f636801a77265717565"
        "737402a5746f706963a174a7636f6e74726f6c01a36c6f67c0a6637572736f72c0aa7769746e6573"
        "735f6e73c0a57374617274c0a57465726d7383a3716f7302a773657373696f6eaa70657273697374"
        "656e74a86c656173655f6d7300",
    ),
    "SUB with a position": (
        Sub(
            client="display-1",
            epoch=1,
            request=2,
            topic="t",
            control=1,
            log="x.1",
            cursor=5,
            witness_ns=1_700_000_000_000_000_000,
        ),
        "8ba476657262a3535542a6636c69656e74a9646973706c61792d31a565706f636801a77265717565"
        "737402a5746f706963a174a7636f6e74726f6c01a36c6f67a3782e31a6637572736f7205aa776974"
        "6e6573735f6e73cf17979cfe362a0000a57374617274c0a57465726d7383a3716f7302a773657373"
        "696f6eaa70657273697374656e74a86c656173655f6d7300",
    ),
    "SUB with a start": (
        Sub(
            client="display-1",
            epoch=1,
            request=2,
            topic="t",
            control=1,
            start=Start("time", 1_700_000_000_000_000_000),
        ),
        "8ba476657262a3535542a6636c69656e74a9646973706c61792d31a565706f636801a77265717565"
        "737402a5746f706963a174a7636f6e74726f6c01a36c6f67c0a6637572736f72c0aa7769746e6573"
        "735f6e73c0a5737461727492a474696d65cf17979cfe362a0000a57465726d7383a3716f7302a773"
        "657373696f6eaa70657273697374656e74a86c656173655f6d7300",
    ),
    "UNSUB": (
        Unsub(client="display-1", epoch=1, request=9, topic="t", control=2),
        "86a476657262a5554e535542a6636c69656e74a9646973706c61792d31a565706f636801a7726571"
        "7565737409a5746f706963a174a7636f6e74726f6c02",
    ),
    "BYE": (
        Bye(client="display-1", epoch=1, request=9),
        "84a476657262a3425945a6636c69656e74a9646973706c61792d31a565706f636801a77265717565737409",
    ),
    "HISTORY": (
        History(client="reader", epoch=0, request=1, topic="t", start=Start("offset", 41)),
        "8aa476657262a7484953544f5259a6636c69656e74a6726561646572a565706f636800a772657175"
        "65737401a5746f706963a174a5737461727492a66f666673657429a36c6f67c0aa7769746e657373"
        "5f6e73c0ac6d657373616765735f6d617801a962797465735f6d6178ce00100000",
    ),
    "HISTORY from a place": (
        History(
            client="reader",
            epoch=0,
            request=2,
            topic="t",
            start=Start("offset", 5),
            log="x.1",
            witness_ns=1_700_000_000_000_000_000,
        ),
        "8aa476657262a7484953544f5259a6636c69656e74a6726561646572a565706f636800a772657175"
        "65737402a5746f706963a174a5737461727492a66f666673657405a36c6f67a3782e31aa7769746e"
        "6573735f6e73cf17979cfe362a0000ac6d657373616765735f6d617801a962797465735f6d6178ce"
        "00100000",
    ),
    "RING": (
        Ring(client="display-1", epoch=1, request=9, topic="t", generation=1, boot="b", place=7),
        "8aa476657262a452494e47a6636c69656e74a9646973706c61792d31a565706f636801a772657175"
        "65737409a5746f706963a174aa67656e65726174696f6e01a4626f6f74a162a5706c61636507ac6d"
        "657373616765735f6d617801a962797465735f6d6178ce00100000",
    ),
    "LISTENERS": (
        Listeners(client="sensor-1", epoch=1, request=2, topic="t"),
        "85a476657262a94c495354454e455253a6636c69656e74a873656e736f722d31a565706f636801a7"
        "7265717565737402a5746f706963a174",
    ),
    "STATUS": (
        Status(client="watch", epoch=0, request=1),
        "87a476657262a6535441545553a6636c69656e74a57761746368a565706f636800a7726571756573"
        "7401ab61667465725f746f706963a0aa746f706963735f6d617864a8726f77735f6d6178ccfa",
    ),
}

REPLIES: dict[str, tuple[AnyReply, str]] = {
    "HELLO_ACK": (
        HelloAck(
            client="p",
            epoch=2,
            request=1,
            boot="b",
            positions=(TopicPosition(topic="t", log="x.1", last_sequence=3, offset=2),),
        ),
        "87a6616e73776572a948454c4c4f5f41434ba6636c69656e74a170a565706f636802a77265717565"
        "737401a4626f6f74a162aa6475726162696c697479a473796e63a9706f736974696f6e739184a574"
        "6f706963a174a36c6f67a3782e31ad6c6173745f73657175656e636503a66f666673657402",
    ),
    "ACK": (
        PutAck(client="p", epoch=2, request=3, boot="b", durability="os", offset=41),
        "87a6616e73776572a341434ba6636c69656e74a170a565706f636802a77265717565737403a4626f"
        "6f74a162aa6475726162696c697479a26f73a66f666673657429",
    ),
    "DUPLICATE": (
        Duplicate(client="p", epoch=2, request=3, boot="b", offset=None),
        "87a6616e73776572a94455504c4943415445a6636c69656e74a170a565706f636802a77265717565"
        "737403a4626f6f74a162aa6475726162696c697479a473796e63a66f6666736574c0",
    ),
    "STAGE_ACK": (
        StageAck(client="p", epoch=2, request=3, boot="b"),
        "86a6616e73776572a953544147455f41434ba6636c69656e74a170a565706f636802a77265717565"
        "737403a4626f6f74a162aa6475726162696c697479a473796e63",
    ),
    "COMMIT_ACK": (
        CommitAck(
            client="p",
            epoch=2,
            request=4,
            boot="b",
            already=False,
            receipts=(TopicReceipt("t", 300, 2, 41),),
        ),
        "88a6616e73776572aa434f4d4d49545f41434ba6636c69656e74a170a565706f636802a772657175"
        "65737404a4626f6f74a162aa6475726162696c697479a473796e63a7616c7265616479c2a8726563"
        "65697074739184a5746f706963a174ae66697273745f73657175656e6365cd012ca5636f756e7402"
        "a66f666673657429",
    ),
    "ABORT_ACK": (
        AbortAck(client="p", epoch=2, request=5, boot="b", dropped=3),
        "87a6616e73776572a941424f52545f41434ba6636c69656e74a170a565706f636802a77265717565"
        "737405a4626f6f74a162aa6475726162696c697479a473796e63a764726f7070656403",
    ),
    "STAGE_LOST": (
        StageLost(client="p", epoch=2, request=4, boot="b", task=1, text="stage again"),
        "88a6616e73776572aa53544147455f4c4f5354a6636c69656e74a170a565706f636802a772657175"
        "65737404a4626f6f74a162aa6475726162696c697479a473796e63a474657874ab73746167652061"
        "6761696ea47461736b01",
    ),
    "DELIVERED": (
        Delivered(
            client="p", epoch=2, request=4, boot="b", acknowledged=("s1",), waiting=("s2", "s3")
        ),
        "88a6616e73776572a944454c495645524544a6636c69656e74a170a565706f636802a77265717565"
        "737404a4626f6f74a162aa6475726162696c697479a473796e63ac61636b6e6f776c656467656491"
        "a27331a777616974696e6792a27332a27333",
    ),
    "DEAD_ACK": (
        DeadAck(client="s", epoch=1, request=8, boot="b", offset=4, already=False),
        "88a6616e73776572a8444541445f41434ba6636c69656e74a173a565706f636801a7726571756573"
        "7408a4626f6f74a162aa6475726162696c697479a473796e63a66f666673657404a7616c72656164"
        "79c2",
    ),
    "SUB_ACK": (
        SubAck(
            client="s",
            epoch=1,
            request=2,
            boot="b",
            topic="t",
            generation=1,
            log="x.1",
            cursor=5,
            already=False,
            witness_ns=1_700_000_000_000_000_000,
        ),
        "8fa6616e73776572a75355425f41434ba6636c69656e74a173a565706f636801a772657175657374"
        "02a4626f6f74a162aa6475726162696c697479a473796e63a5746f706963a174aa67656e65726174"
        "696f6e01a36c6f67a3782e31a6637572736f7205a7616c7265616479c2aa7769746e6573735f6e73"
        "cf17979cfe362a0000a57465726d7383a3716f7302a773657373696f6eaa70657273697374656e74"
        "a86c656173655f6d7300a573686f776e00a472696e6700",
    ),
    "UNSUB_ACK": (
        UnsubAck(client="s", epoch=1, request=9, boot="b", topic="t", already=True),
        "88a6616e73776572a9554e5355425f41434ba6636c69656e74a173a565706f636801a77265717565"
        "737409a4626f6f74a162aa6475726162696c697479a473796e63a5746f706963a174a7616c726561"
        "6479c3",
    ),
    "BYE_ACK": (
        ByeAck(client="s", epoch=1, request=9, boot="b", ended=2),
        "87a6616e73776572a74259455f41434ba6636c69656e74a173a565706f636801a772657175657374"
        "09a4626f6f74a162aa6475726162696c697479a473796e63a5656e64656402",
    ),
    "MESSAGE": (
        MessageBatches(
            client="s",
            epoch=1,
            request=7,
            boot="b",
            batches=(BatchHeader(41, 1, "p", 300, 1_700_000_000_000_000_000, 7, len(BODY)),),
            end=42,
        ),
        "88a6616e73776572a74d455353414745a6636c69656e74a173a565706f636801a772657175657374"
        "07a4626f6f74a162aa6475726162696c697479a473796e63a76261746368657391982901a170cd01"
        "2ccf17979cfe362a0000070c02a3656e642a",
    ),
    "NO_MESSAGES_YET": (
        NoMessagesYet(client="s", epoch=1, request=7, boot="b", end=42),
        "87a6616e73776572af4e4f5f4d455353414745535f594554a6636c69656e74a173a565706f636801"
        "a77265717565737407a4626f6f74a162aa6475726162696c697479a473796e63a3656e642a",
    ),
    "LOST": (
        Lost(client="s", epoch=1, request=7, boot="b", first=3, end=9),
        "88a6616e73776572a44c4f5354a6636c69656e74a173a565706f636801a77265717565737407a462"
        "6f6f74a162aa6475726162696c697479a473796e63a5666972737403a3656e6409",
    ),
    "NOT_SUB": (
        NotSub(client="s", epoch=1, request=7, boot="b", text="subscribe first"),
        "87a6616e73776572a74e4f545f535542a6636c69656e74a173a565706f636801a772657175657374"
        "07a4626f6f74a162aa6475726162696c697479a473796e63a474657874af73756273637269626520"
        "6669727374",
    ),
    "STALE": (
        Stale(client="s", epoch=1, request=7, boot="b", text="subscribe again"),
        "87a6616e73776572a55354414c45a6636c69656e74a173a565706f636801a77265717565737407a4"
        "626f6f74a162aa6475726162696c697479a473796e63a474657874af737562736372696265206167"
        "61696e",
    ),
    "FENCED": (
        Fenced(client="p", epoch=1, request=7, boot="b", current_epoch=2, text="newer"),
        "88a6616e73776572a646454e434544a6636c69656e74a170a565706f636801a77265717565737407"
        "a4626f6f74a162aa6475726162696c697479a473796e63a474657874a56e65776572ad6375727265"
        "6e745f65706f636802",
    ),
    "GAP": (
        Gap(client="p", epoch=1, request=7, boot="b", expected=4, text="4 is next"),
        "88a6616e73776572a3474150a6636c69656e74a170a565706f636801a77265717565737407a4626f"
        "6f74a162aa6475726162696c697479a473796e63a474657874a934206973206e657874a865787065"
        "6374656404",
    ),
    "CONFLICT": (
        Conflict(
            client="p", epoch=1, request=7, boot="b", first_sequence=3, count=2, text="stored"
        ),
        "89a6616e73776572a8434f4e464c494354a6636c69656e74a170a565706f636801a7726571756573"
        "7407a4626f6f74a162aa6475726162696c697479a473796e63a474657874a673746f726564ae6669"
        "7273745f73657175656e636503a5636f756e7402",
    ),
    "LOG_CHANGED": (
        LogChanged(
            client="s",
            epoch=1,
            request=7,
            boot="b",
            topic="t",
            log="x.1",
            start=0,
            end=9,
            text="another log",
        ),
        "8ba6616e73776572ab4c4f475f4348414e474544a6636c69656e74a173a565706f636801a7726571"
        "7565737407a4626f6f74a162aa6475726162696c697479a473796e63a474657874ab616e6f746865"
        "72206c6f67a5746f706963a174a36c6f67a3782e31a5737461727400a3656e6409",
    ),
    "TRUNCATED": (
        Truncated(
            client="s", epoch=1, request=7, boot="b", start=9, start_ns=7, text="begins at 9"
        ),
        "89a6616e73776572a95452554e4341544544a6636c69656e74a173a565706f636801a77265717565"
        "737407a4626f6f74a162aa6475726162696c697479a473796e63a474657874ab626567696e732061"
        "742039a5737461727409a873746172745f6e7307",
    ),
    "OUT_OF_RANGE": (
        OutOfRange(client="s", epoch=1, request=7, boot="b", start=3, end=9, text="not yet"),
        "89a6616e73776572ac4f55545f4f465f52414e4745a6636c69656e74a173a565706f636801a77265"
        "717565737407a4626f6f74a162aa6475726162696c697479a473796e63a474657874a76e6f742079"
        "6574a5737461727403a3656e6409",
    ),
    "LIMIT": (
        Limit(client="p", epoch=1, request=7, boot="b", limit=10, text="10 topics"),
        "88a6616e73776572a54c494d4954a6636c69656e74a170a565706f636801a77265717565737407a4"
        "626f6f74a162aa6475726162696c697479a473796e63a474657874a9313020746f70696373a56c69"
        "6d69740a",
    ),
    "MALFORMED": (
        Malformed(client="", epoch=0, request=0, boot="b", text="no header"),
        "87a6616e73776572a94d414c464f524d4544a6636c69656e74a0a565706f636800a7726571756573"
        "7400a4626f6f74a162aa6475726162696c697479a473796e63a474657874a96e6f20686561646572",
    ),
    "FULL": (
        Full(client="p", epoch=1, request=7, boot="b", text="full"),
        "87a6616e73776572a446554c4ca6636c69656e74a170a565706f636801a77265717565737407a462"
        "6f6f74a162aa6475726162696c697479a473796e63a474657874a466756c6c",
    ),
    "BUSY": (
        Busy(client="p", epoch=1, request=7, boot="b", text="busy"),
        "87a6616e73776572a442555359a6636c69656e74a170a565706f636801a77265717565737407a462"
        "6f6f74a162aa6475726162696c697479a473796e63a474657874a462757379",
    ),
    "STORAGE_FULL": (
        StorageFull(client="p", epoch=1, request=7, boot="b", text="disk"),
        "87a6616e73776572ac53544f524147455f46554c4ca6636c69656e74a170a565706f636801a77265"
        "717565737407a4626f6f74a162aa6475726162696c697479a473796e63a474657874a46469736b",
    ),
    "LISTENERS_REPORT": (
        ListenersReport(
            client="sensor-1",
            epoch=1,
            request=2,
            boot="b",
            topic="t",
            subscriptions=3,
            pushed=True,
            ingress_endpoint="i",
        ),
        "8aa6616e73776572b04c495354454e4552535f5245504f5254a6636c69656e74a873656e736f722d"
        "31a565706f636801a77265717565737402a4626f6f74a162aa6475726162696c697479a473796e63"
        "a5746f706963a174ad737562736372697074696f6e7303a6707573686564c3b0696e67726573735f"
        "656e64706f696e74a169",
    ),
    "STATUS_REPORT": (
        StatusReport(
            client="w",
            epoch=0,
            request=1,
            boot="b",
            topics=(
                TopicStatus(
                    topic="t",
                    log="x.1",
                    start=0,
                    end=3,
                    stored_bytes=36,
                    subscriptions=(
                        SubscriptionStatus(
                            subscriber="s",
                            generation=1,
                            terms=Terms(),
                            state="active",
                            silent_s=0.5,
                            cursor=1,
                            lag_messages=2,
                            lag_s=0.5,
                            lost=4,
                        ),
                    ),
                    subscriptions_left_out=0,
                    publishers=(
                        PublisherStatus(publisher="p", qos=1, last_sequence=3, last_offset=2),
                    ),
                    publishers_left_out=0,
                    ring=RingStatus(end=6, held=2, held_bytes=30),
                ),
            ),
            next_topic="t",
            topics_count=2,
            sessions_count=2,
            dropped_requests=0,
            requests_count=9,
            push=PushStatus(endpoint="e", links=1, plain=2, sent=3, dropped=4, queued=5),
            staging=StagingStatus(transactions=1, batches=2, staged_bytes=3, writers=4),
            ingress=IngressStatus(endpoint="i", patterns=1, taken=6, unwanted=7, refused=8),
            committer=CommitterStatus(
                queued_records=0, commits=5, records=7, last_commit_ms=1.5, storage_full=False
            ),
            store_path="d",
        ),
        "de0011a6616e73776572ad5354415455535f5245504f5254a6636c69656e74a177a565706f636800"
        "a77265717565737401a4626f6f74a162aa6475726162696c697479a473796e63a6746f7069637391"
        "8aa5746f706963a174a36c6f67a3782e31a5737461727400a3656e6403ac73746f7265645f627974"
        "657324ad737562736372697074696f6e739189aa73756273637269626572a173aa67656e65726174"
        "696f6e01a57465726d7383a3716f7302a773657373696f6eaa70657273697374656e74a86c656173"
        "655f6d7300a57374617465a6616374697665a873696c656e745f73cb3fe0000000000000a6637572"
        "736f7201ac6c61675f6d6573736167657302a56c61675f73cb3fe0000000000000a46c6f737404b6"
        "737562736372697074696f6e735f6c6566745f6f757400aa7075626c6973686572739184a9707562"
        "6c6973686572a170a3716f7301ad6c6173745f73657175656e636503ab6c6173745f6f6666736574"
        "02b37075626c6973686572735f6c6566745f6f757400a472696e6783a3656e6406a468656c6402aa"
        "68656c645f62797465731eaa6e6578745f746f706963a174ac746f706963735f636f756e7402ae73"
        "657373696f6e735f636f756e7402b064726f707065645f726571756573747300ae72657175657374"
        "735f636f756e7409a9636f6d6d697474657285ae7175657565645f7265636f72647300a7636f6d6d"
        "69747305a77265636f72647307ae6c6173745f636f6d6d69745f6d73cb3ff8000000000000ac7374"
        "6f726167655f66756c6cc2a47075736886a8656e64706f696e74a165a56c696e6b7301a5706c6169"
        "6e02a473656e7403a764726f7070656404a671756575656405a773746167696e6784ac7472616e73"
        "616374696f6e7301a76261746368657302ac7374616765645f627974657303a77772697465727304"
        "a7696e677265737385a8656e64706f696e74a169a87061747465726e7301a574616b656e06a8756e"
        "77616e74656407a77265667573656408aa73746f72655f70617468a164",
    ),
}

BATCHES: dict[str, tuple[Batch, str]] = {
    "payloads": (Batch([b"hello"]), "9491c40568656c6c6fc0c0c0"),
    "keys": (Batch([b"a", b"b"], keys=[b"k", None]), "9492c40161c4016292c4016bc0c0c0"),
    "headers": (
        Batch([b"a", b"b"], headers=[{"h": "v"}, None]),
        "9492c40161c40162c09281a168a176c0c0",
    ),
    "event times": (
        Batch([b"a", b"b"], event_times_ns=[None, 1_700_000_000_000_000_000]),
        "9492c40161c40162c0c092c0cf17979cfe362a0000",
    ),
    "all columns": (
        Batch([b"a", b""], [None, b"k"], [None, {"h": "v", "i": ""}], [1, None]),
        "9492c40161c40092c0c4016b92c082a168a176a169a09201c0",
    ),
}


@pytest.mark.parametrize(("request_", "header"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_is_these_bytes(request_: AnyRequest, header: str) -> None:
    body = BODY if isinstance(request_, Put | Stage | Dead) else None
    frames = [b"RPS1", bytes.fromhex(header), *([] if body is None else [body])]

    assert encode_request(request_, body) == frames
    assert decode_request(frames) == (request_, body or b"")


@pytest.mark.parametrize(("reply", "header"), REPLIES.values(), ids=REPLIES)
def test_an_answer_is_these_bytes(reply: AnyReply, header: str) -> None:
    body = BODY if isinstance(reply, MessageBatches) else None
    frames = [b"RPS1", bytes.fromhex(header), *([] if body is None else [body])]

    assert encode_reply(reply, body) == frames
    assert decode_reply(frames) == (reply, body or b"")


@pytest.mark.parametrize(("batch", "body"), BATCHES.values(), ids=BATCHES)
def test_a_batch_is_these_bytes(batch: Batch, body: str) -> None:
    encoded = bytes.fromhex(body)

    assert encode_batch(batch) == encoded
    assert decode_batch(encoded, len(batch.payloads)) == batch


def test_the_body_of_these_examples_is_a_batch() -> None:
    assert encode_batch(Batch([b"hello"])) == BODY


def test_every_request_and_every_answer_has_its_golden_bytes() -> None:
    """A new verb or answer stands here on the day it is made."""
    requests = {type(request) for request, _ in REQUESTS.values()}
    replies = {type(reply) for reply, _ in REPLIES.values()}

    assert requests == set(get_args(AnyRequest))
    assert replies == set(get_args(AnyReply))


def test_an_answer_is_named_by_its_code() -> None:
    assert all(type(reply).__struct_config__.tag == name for name, (reply, _) in REPLIES.items())
