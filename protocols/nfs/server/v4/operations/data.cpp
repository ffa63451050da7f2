// SPDX-License-Identifier: Apache-2.0
// READ, WRITE, COMMIT, READLINK.
#include "operations.hpp"
#include "steps.hpp"

#include "../../located.hpp"

#include <verbena/protocols/nfs/server/v4/server.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <cstring>
#include <string>

namespace verbena::nfs::v4::operations {

namespace {

void count_read(compound& k, std::size_t bytes) noexcept
{
    k.server.counters.bytes_read.add(bytes);
    if (export_counters* const of_export = k.counters_of_current())
        of_export->bytes_read.add(bytes);
}

// eof and the length word, with opcode and status.
constexpr std::size_t read_overhead = 16;
// What the operations behind data may need.
constexpr std::size_t usual_rest = 2048;

verifier4 to_verifier(std::uint64_t value) noexcept
{
    verifier4 verifier;
    xdr::store_u64(verifier.data(), value);
    return verifier;
}

} // namespace

task<nfsstat4> read(compound& k)
{
    READ4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::reading);
    if (status == nfsstat4::ok)
        status = co_await check_io(k, args.stateid, files::operation::read);
    if (status != nfsstat4::ok)
        co_return status;
    const object& file = k.current;
    const bool attaches = k.may_attach();
    const std::uint64_t offset = std::min(args.offset, last_offset);
    const std::size_t left = k.left();
    std::uint64_t most = left > read_overhead + xdr::unit ? left - read_overhead - xdr::unit : 0;
    if (args.count != 0 && most == 0)
        co_return k.too_big();
    // A READ may return less than was asked for (8881 18.22.3).
    most = std::min<std::uint64_t>(
        {most, args.count, server::max_transfer, last_offset - offset, k.c.most_result()});
    if (!attaches) {
        (void)co_await k.c.reserve_results(most + read_overhead + usual_rest);
        const std::size_t room = k.results.room();
        if (args.count != 0 && room <= read_overhead + xdr::unit)
            co_return k.too_big();
        most = std::min<std::uint64_t>(most, room - read_overhead - xdr::unit);
    }
    const auto count = static_cast<std::uint32_t>(most);
    READ4res res;
    const rpc::sent_in_place in_place = k.c.sends_in_place();
    if (attaches && may_be_located(file.backend(), count, in_place)) {
        k.c.expect_results(k.attached_bytes() + count);
        const auto where = k.may_send_from_file() ? locatable_by(in_place) : storage::locatable::memory;
        auto there = co_await file.backend().locate(file.request, file.file, offset, count, where);
        if (there && there->here) {
            res.eof = there->read.end_of_file;
            res.data.length = there->read.count;
            res.data.external = true;
            status = k.add(res);
            if (status == nfsstat4::ok) {
                attach(k.c, std::move(*there));
                count_read(k, res.data.length);
            }
            co_return status;
        }
    }
    k.c.expect_results(k.attached_bytes() + count);
    const std::size_t wanted = std::max<std::size_t>(count, 1);
    lease buffer = co_await k.c.acquire(wanted);
    if (!buffer)
        co_return nfsstat4::delay;
    const std::span<std::byte> space = buffer.bytes().first(count);
    const auto done = co_await file.backend().read(file.request, file.file, offset, space);
    if (!done) {
        status = status_of_storage(done.error());
        co_return co_await refuse_data(file, status);
    }
    std::span<const std::byte> bytes = space.first(std::min(done->count, count));
    if (attaches)
        bytes = k.without_slack(buffer, bytes);
    res.eof = done->end_of_file;
    res.data = bytes;
    res.data.external = attaches;
    status = k.add(res);
    if (status != nfsstat4::ok)
        co_return status;
    count_read(k, bytes.size());
    if (attaches)
        k.c.attach(rpc::payload(std::move(buffer), bytes));
    co_return nfsstat4::ok;
}

task<nfsstat4> write(compound& k)
{
    WRITE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::changing);
    if (status == nfsstat4::ok && (args.offset > last_offset || args.data.length > last_offset - args.offset))
        status = nfsstat4::fbig;
    if (status == nfsstat4::ok)
        status = k.check_room<WRITE4res>();
    if (status == nfsstat4::ok)
        status = co_await check_io(k, args.stateid, files::operation::write);
    if (status != nfsstat4::ok)
        co_return status;
    const object& file = k.current;
    rpc::payload pulled;
    std::span<const std::byte> here = args.data.inline_bytes;
    std::span<const std::span<const std::byte>> pieces(&here, 1);
    if (args.data.external) {
        auto got = co_await k.c.pull(args.data);
        if (!got)
            co_return k.not_pulled(got.error());
        pulled = std::move(*got);
        pieces = pulled.pieces();
    }
    // From before: if a sync fails once the data are in memory, they may be lost, and the client must see that the
    // verifier of its COMMIT is another.
    WRITE4res res;
    res.writeverf = to_verifier(file.backend().write_verifier());
    const auto done = co_await file.backend().write(file.request, file.file, args.offset, pieces,
                                                    storage::stability(args.stable));
    if (!done) {
        status = status_of_storage(done.error());
        co_return co_await refuse_data(file, status);
    }
    res.count = done->count;
    res.committed = stable_how4(done->committed);
    k.server.counters.bytes_written.add(done->count);
    if (export_counters* const of_export = k.counters_of_current())
        of_export->bytes_written.add(done->count);
    k.written = done->file.after;
    k.written_by = k.args.index();
    co_return k.add(res);
}

task<nfsstat4> commit(compound& k)
{
    COMMIT4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    // Not purpose::changing: what was written before an export became read-only is still owed.
    if (const nfsstat4 status = k.need_file(purpose::reading); status != nfsstat4::ok)
        co_return status;
    const object& file = k.current;
    // A range that no file can have means the whole one: more is never wrong.
    const bool whole = args.offset > last_offset || args.count > last_offset - args.offset;
    const auto done = co_await file.backend().commit(file.request, file.file, whole ? 0 : args.offset,
                                                     whole ? 0 : args.count);
    if (!done) {
        const nfsstat4 status = status_of_storage(done.error());
        co_return co_await refuse_data(file, status);
    }
    COMMIT4res res;
    res.writeverf = to_verifier(file.backend().write_verifier());
    co_return k.add(res);
}

task<nfsstat4> readlink(compound& k)
{
    if (const nfsstat4 status = k.need_file(purpose::reading); status != nfsstat4::ok)
        co_return status == nfsstat4::isdir ? nfsstat4::wrong_type : status;
    const object& link = k.current;
    const auto path = co_await link.backend().readlink(link.request, link.file);
    if (!path) {
        const nfsstat4 status = status_of_storage(path.error());
        co_return status == nfsstat4::inval ? nfsstat4::wrong_type : status;
    }
    READLINK4res res;
    res.link = std::as_bytes(std::span(*path));
    if (!k.may_attach()) {
        if (path->size() > k.results.room())
            k.lacks_memory = !co_await k.c.reserve_results(path->size() + usual_rest);
        co_return k.add(res);
    }
    k.c.expect_results(k.attached_bytes() + path->size());
    const std::size_t wanted = std::max<std::size_t>(path->size(), 1);
    lease buffer = co_await k.c.acquire(wanted);
    if (!buffer)
        co_return nfsstat4::delay;
    std::memcpy(buffer.data(), path->data(), path->size());
    const std::span<const std::byte> bytes = buffer.bytes().first(path->size());
    res.link.external = true;
    const nfsstat4 status = k.add(res);
    if (status == nfsstat4::ok)
        k.c.attach(rpc::payload(std::move(buffer), bytes));
    co_return status;
}

} // namespace verbena::nfs::v4::operations
