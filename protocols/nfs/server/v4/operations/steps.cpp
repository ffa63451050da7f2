// SPDX-License-Identifier: Apache-2.0
#include "steps.hpp"

#include "../compounds.hpp"

#include <utility>

namespace verbena::nfs::v4::operations {

task<nfsstat4> answer_with(nfsstat4 status) { co_return status; }

task<nfsstat4> refuse_data(const object& of, nfsstat4 status)
{
    if (status != nfsstat4::inval)
        co_return status;
    const auto attrs = co_await of.backend().getattr(of.request, of.file);
    const nfsstat4 type = attrs ? refuse_type(attrs->type) : nfsstat4::ok;
    co_return type == nfsstat4::ok ? status : type;
}

task<nfsstat4> check_io(compound& k, stateid4 id, files::operation op)
{
    if (const nfsstat4 status = k.resolve(id); status != nfsstat4::ok)
        return answer_with(status);
    return check_io_of(k, k.current, id, op);
}

task<nfsstat4> check_io_of(compound& k, object& of, stateid4 id, files::operation op)
{
    const files::share access = files::access_of(op);
    k.next_doing().begin(k.server.under_way, of.exported->space, of.file,
                         op); // the table is asked in any case
    const files::exported_file file = of.state_file();
    nfsstat4 status = nfsstat4::ok;
    if (k.minor() == 0) {
        status = co_await k.server.commons.v40.check_io(id, file, op, k.terms);
        if (k.terms.client != files::nobody)
            k.c.from().client = k.terms.client;
    } else {
        const result<void> checked = co_await v4::check_io(k.server.state, k.client, id, file, op, k.terms);
        status = status_of_state(checked);
    }
    if (status == nfsstat4::ok && any(access)) {
        k.opened[k.doing_count - 1] = std::move(k.terms.opened);
        of.request.open = k.opened[k.doing_count - 1].get();
    }
    k.terms.opened.reset();
    co_return status;
}

task<nfsstat4> need_regular(const object& file)
{
    const auto attrs = co_await file.backend().getattr(file.request, file.file);
    co_return attrs ? refuse_type(attrs->type) : status_of_storage(attrs.error());
}

task<nfsstat4> make_way(compound& k, const object& of, files::operation op)
{
    const files::exported_file file = of.state_file();
    co_await learn_client(k);
    const result<void> made = co_await k.server.state.make_way(k.client, file, op);
    co_return status_of_state(made);
}

task<result<nfsstat4>> make_way_to(compound& k, const object& directory, std::string_view name,
                                   files::operation op, may_change_name may,
                                   std::optional<storage::handle>* asked)
{
    files::under_way& doing = k.next_doing();
    if (!k.server.state.begin_by_name(doing, k.server.under_way, op))
        co_return nfsstat4::ok;
    if (name == "." || name == "..")
        co_return nfsstat4::ok;
    const auto found = co_await directory.backend().lookup(directory.request, directory.file, name);
    if (!found) {
        if (asked != nullptr && found.error().errno_value() == ENOENT)
            asked->emplace();
        co_return nfsstat4::ok;
    }
    const std::uint32_t space = directory.exported->space;
    const storage::handle handle = found->found.handle;
    if (asked != nullptr)
        *asked = handle;
    if (!k.server.state.begin(doing, k.server.under_way, space, handle, op))
        co_return nfsstat4::ok;
    // What is refused anyway costs nobody what he has: a client that is silent would lose all of it.
    task<result<void>> asking = may();
    const result<void> allowed = co_await asking;
    if (!allowed)
        co_return allowed.error();
    const files::exported_file file(files::file_key(space, handle), directory.exported->id);
    co_await learn_client(k);
    // A removal of minor version 0 says not whose it is (RFC 7530 16.25): a client that denies others to write may
    // remove its own file.
    const bool is_anybody = k.client == files::nobody;
    const result<void> made = co_await k.server.state.make_way(k.client, file, op, is_anybody);
    co_return status_of_state(made);
}

} // namespace verbena::nfs::v4::operations
