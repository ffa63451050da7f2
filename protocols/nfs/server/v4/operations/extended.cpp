// SPDX-License-Identifier: Apache-2.0
// What minor version 2 adds for data: SEEK, ALLOCATE, DEALLOCATE, IO_ADVISE, COPY, CLONE (7862 15).
#include "operations.hpp"
#include "steps.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/yield.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <cerrno>
#include <unistd.h>

namespace verbena::nfs::v4::operations {

namespace {

// What is asked of the back end at once, and counts as one operation for filters.
constexpr std::uint64_t most_copied = 4u << 20;

bool is_too_far(std::uint64_t offset, std::uint64_t length) noexcept
{
    return offset > last_offset || length > last_offset - offset;
}

// Of what is no regular file READ says what it is. What goes from file to file or makes room says WRONG_TYPE (7862 15.2.3, 15.13.3).
nfsstat4 as_wrong_type(nfsstat4 status) noexcept
{
    return status == nfsstat4::isdir || status == nfsstat4::symlink ? nfsstat4::wrong_type : status;
}

} // namespace

task<nfsstat4> seek(compound& k)
{
    SEEK4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::reading);
    if (status == nfsstat4::ok && args.what != data_content4::data && args.what != data_content4::hole)
        status = nfsstat4::union_notsupp;
    if (status == nfsstat4::ok)
        status = co_await check_io(k, args.stateid, files::operation::read);
    if (status != nfsstat4::ok)
        co_return status;
    const object& file = k.current;
    const auto what = args.what == data_content4::data ? storage::extent::data : storage::extent::hole;
    const auto found = co_await file.backend().seek(file.request, file.file, args.offset, what);
    if (!found) {
        // Elsewhere it would be the error of a device.
        if (found.error().errno_value() == ENXIO)
            co_return nfsstat4::nxio;
        status = status_of_storage(found.error());
        co_return co_await refuse_data(file, status);
    }
    SEEK4res res;
    res.eof = found->end_of_file;
    res.offset = found->offset;
    co_return k.add(res);
}

namespace {

using extents_change = task<result<storage::change>> (storage::file_backend::*)(const storage::request&,
                                                                                const storage::handle&,
                                                                                std::uint64_t, std::uint64_t);

// ALLOCATE and DEALLOCATE, which are writes of a kind.
template<class Arguments, class Results>
task<nfsstat4> change_extents(compound& k, extents_change what)
{
    Arguments args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = as_wrong_type(k.need_file(purpose::changing));
    if (status == nfsstat4::ok && (args.length == 0 || args.length > ~std::uint64_t(0) - args.offset))
        status = nfsstat4::inval;
    if (status == nfsstat4::ok && is_too_far(args.offset, args.length))
        status = nfsstat4::fbig;
    if (status == nfsstat4::ok)
        status = k.check_room<Results>();
    if (status != nfsstat4::ok)
        co_return status;
    status = co_await check_io(k, args.stateid, files::operation::change_extents);
    if (status != nfsstat4::ok)
        co_return status;
    const object& file = k.current;
    const auto done = co_await (file.backend().*what)(file.request, file.file, args.offset, args.length);
    if (!done) {
        status = status_of_storage(done.error());
        co_return as_wrong_type(co_await refuse_data(file, status));
    }
    co_return k.add(Results());
}

} // namespace

task<nfsstat4> allocate(compound& k)
{
    return change_extents<ALLOCATE4args, ALLOCATE4res>(k, &storage::file_backend::allocate);
}

task<nfsstat4> deallocate(compound& k)
{
    return change_extents<DEALLOCATE4args, DEALLOCATE4res>(k, &storage::file_backend::deallocate);
}

// No hint is taken, and none is said to be.
task<nfsstat4> io_advise(compound& k)
{
    IO_ADVISE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::reading);
    if (status == nfsstat4::ok)
        status = co_await check_io(k, args.stateid, files::operation::read);
    if (status == nfsstat4::ok)
        status = co_await need_regular(k.current); // what is no regular file has no data
    co_return status == nfsstat4::ok ? k.add(IO_ADVISE4res()) : status;
}

namespace {

// What COPY and CLONE must pass: from the saved handle, which is read, to the current one, which is written.
task<nfsstat4> begin_between(compound& k, stateid4 source, stateid4 target)
{
    nfsstat4 status = k.saved.none() ? nfsstat4::nofilehandle : k.need_file(purpose::changing);
    if (status == nfsstat4::ok)
        status = compound::check_file(k.saved, purpose::reading);
    // Also where both lie on one file system: each export has its own rules of who may do what.
    if (status == nfsstat4::ok && k.saved.exported != k.current.exported)
        status = nfsstat4::xdev;
    if (status == nfsstat4::ok)
        status = k.resolve_saved(source);
    if (status == nfsstat4::ok)
        status = k.resolve(target);
    if (status == nfsstat4::ok)
        status = k.check_room<COPY4res>();
    if (status != nfsstat4::ok)
        co_return as_wrong_type(status);
    status = co_await check_io_of(k, k.saved, source, files::operation::read);
    if (status != nfsstat4::ok)
        co_return status;
    co_return co_await check_io_of(k, k.current, target, files::operation::change_extents);
}

// Rights, and what the target is: what an open file that the stateid names has passed, or the back end else finds.
task<nfsstat4> may_copy_between(const object& from, const object& to)
{
    const auto attrs = co_await to.backend().getattr(to.request, to.file);
    if (!attrs)
        co_return status_of_storage(attrs.error());
    if (attrs->type != storage::file_type::regular)
        co_return nfsstat4::wrong_type;
    if (from.request.open == nullptr) {
        const auto allowed = co_await from.backend().access(from.request, from.file, R_OK);
        if (!allowed || *allowed != R_OK)
            co_return allowed ? nfsstat4::access : status_of_storage(allowed.error());
    }
    if (to.request.open == nullptr) {
        const auto allowed = co_await to.backend().access(to.request, to.file, W_OK);
        if (!allowed || *allowed != W_OK)
            co_return allowed ? nfsstat4::access : status_of_storage(allowed.error());
    }
    co_return nfsstat4::ok;
}

} // namespace

task<nfsstat4> copy(compound& k)
{
    COPY4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (!args.source_server.empty())
        co_return nfsstat4::notsupp;
    nfsstat4 status = co_await begin_between(k, args.src_stateid, args.dst_stateid);
    if (status != nfsstat4::ok)
        co_return status;
    const object& from = k.saved;
    const object& to = k.current;
    const auto attrs = co_await from.backend().getattr(from.request, from.file);
    if (!attrs)
        co_return status_of_storage(attrs.error());
    if (attrs->type != storage::file_type::regular)
        co_return nfsstat4::wrong_type;
    // Unlike CLONE, COPY is not within one file, be its ranges apart or not (7862 15.2.3).
    if (from.file == to.file)
        co_return nfsstat4::inval;
    // A range beyond the source's end is none (7862 15.2.3).
    if (args.src_offset > attrs->size || args.count > attrs->size - args.src_offset)
        co_return nfsstat4::inval;
    const std::uint64_t length = args.count != 0 ? args.count : attrs->size - args.src_offset;
    if (is_too_far(args.dst_offset, length))
        co_return nfsstat4::fbig;
    // From before, as WRITE has it.
    COPY4res res;
    xdr::store_u64(res.response.writeverf.data(), to.backend().write_verifier());
    storage::request request = to.request;
    request.source = from.request.open;
    // It is answered when it is done, and goes from the begin to the end, whatever the client would have allowed.
    res.requirements.consecutive = res.requirements.synchronous = true;
    const task_context& context = co_await current_context();
    const time_point until = context.shard->clock().now() + server::max_copy_time;
    const std::uint64_t most = std::min(length, server::max_copy);
    // Of nothing the back end would not be asked.
    if (most == 0) {
        status = co_await may_copy_between(from, to);
        if (status != nfsstat4::ok)
            co_return status;
    }
    storage::stability committed = storage::stability::file_sync;
    std::uint64_t done = 0;
    while (done < most) {
        const auto some =
            co_await to.backend().copy(request, from.file, args.src_offset + done, to.file,
                                       args.dst_offset + done, std::min(most - done, most_copied));
        // What was copied is told; the client asks for the rest, and hears why there is none.
        if (!some && done != 0)
            break;
        if (!some) {
            status = status_of_storage(some.error());
            co_return as_wrong_type(co_await refuse_data(to, status));
        }
        done += some->count;
        committed = std::min(committed, some->committed);
        if (some->count == 0 || context.shard->clock().now() >= until)
            break;
        co_await yield(); // what a back end in memory copies does not wait by itself
    }
    res.response.count = done;
    res.response.committed = stable_how4(committed);
    co_return k.add(res);
}

task<nfsstat4> clone(compound& k)
{
    CLONE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = co_await begin_between(k, args.src_stateid, args.dst_stateid);
    if (status != nfsstat4::ok)
        co_return status;
    const object& from = k.saved;
    const object& to = k.current;
    const auto attrs = co_await from.backend().getattr(from.request, from.file);
    if (!attrs)
        co_return status_of_storage(attrs.error());
    if (attrs->type != storage::file_type::regular)
        co_return nfsstat4::wrong_type;
    storage::request request = to.request;
    request.source = from.request.open;
    auto cloning =
        to.backend().clone(request, from.file, args.src_offset, to.file, args.dst_offset, args.count);
    auto done = co_await cloning;
    // Much of the source is in peers' reach, so that it can be copied alone, and not at once: whoever has it gives it back.
    if (!done && done.error().errno_value() == EAGAIN) {
        status = co_await make_way(k, from, files::operation::change_extents);
        if (status != nfsstat4::ok)
            co_return status;
        auto again =
            to.backend().clone(request, from.file, args.src_offset, to.file, args.dst_offset, args.count);
        done = co_await again;
    }
    if (!done) {
        status = status_of_storage(done.error());
        co_return as_wrong_type(co_await refuse_data(to, status));
    }
    co_return k.add(CLONE4res());
}

} // namespace verbena::nfs::v4::operations
