// SPDX-License-Identifier: Apache-2.0
#include "root_looks.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/server/v4/storage_acl.hpp>

#include <memory>
#include <utility>

namespace verbena::nfs::v4 {

/// It outlives a call that waits no longer for it.
struct root_looks::look {
    look(const object& root, export_table::use u)
        : lists(std::move(u)), exported(root.exported), files(root.backend()), file(root.file)
    {
        request.who = root.request.who;
    }
    export_table::use lists;
    export_ref exported;
    storage::file_backend& files;
    const storage::handle file;
    storage::request request;
    bool wants_space = false, wants_acl = false;
    result<storage::attributes> attrs = error(std::errc::timed_out);
    result<storage::filesystem_stat> space = error(std::errc::timed_out);
    result<storage::access_list> acl = error(std::errc::timed_out);
    event over;
};

task<void> root_looks::run(std::shared_ptr<look> l)
{
    try {
        l->attrs = co_await l->files.getattr(l->request, l->file);
        if (l->attrs && l->wants_space)
            l->space = co_await l->files.statfs(l->request, l->file);
        if (l->attrs && l->wants_acl)
            l->acl = co_await l->files.getacl(l->request, l->file);
    } catch (...) { // else all who come later would wait for this look
        l->attrs = error_of(std::current_exception(), "an exception left a look at an export's root");
    }
    // A late one is remembered until the export is asked again, which a removed one never is.
    l->exported = export_ref();
    l->lists = export_table::use();
    l->over.set();
}

time_point root_looks::until() const noexcept { return here_.reactor().now() + patience; }

task<nfsstat4> root_looks::values_of(call_context& k, const object& root, bitmap4 wanted, object_values& out,
                                     time_point until)
{
    if (root.is_pseudo())
        co_return co_await values_.values_of(k, root, wanted, out);
    if (const auto late = late_.find(root.exported->id); late != late_.end()) {
        if (!late->second->over.is_set())
            co_return nfsstat4::delay;
        late_.erase(late);
    }
    const auto asked = std::make_shared<look>(root, handles_.begin_use());
    asked->wants_space = !(wanted & of_space).none();
    asked->wants_acl = wanted.test(attribute::acl) && root.backend().info().acls;
    here_.tasks().spawn(already_made, run(asked));
    if (const time_point now = here_.reactor().now(); !asked->over.is_set() && now < until) {
        const auto wait = [](std::shared_ptr<look> of) -> task<result<bool>> {
            const bool ended = co_await of->over.wait("a look at the roots of exports");
            co_return ended;
        };
        task<result<bool>> waiting = wait(asked);
        (void)co_await with_timeout(until - now, std::move(waiting));
    }
    if (!asked->over.is_set()) {
        late_.emplace(root.exported->id, asked);
        co_return nfsstat4::delay;
    }
    if (!asked->attrs)
        co_return status_of_storage(asked->attrs.error());
    values_.set_constants(root, k.minor(), out);
    if (file_handle handle; wanted.test(attribute::filehandle) && handles_.sign(root, handle))
        out.set_handle(handle);
    values_.set_file(root, *asked->attrs, out);
    values_.set_covered(root, out);
    if (asked->wants_space && !asked->space)
        co_return status_of_storage(asked->space.error());
    if (asked->wants_space)
        out.set_space(*asked->space);
    if (names_.says(wanted)) {
        task<void> saying = names_.say(k.waits, wanted, out);
        co_await saying;
    }
    if (asked->wants_acl && !asked->acl)
        co_return status_of_storage(asked->acl.error());
    if (asked->wants_acl)
        out.set_acl(*asked->acl);
    co_return nfsstat4::ok;
}

} // namespace verbena::nfs::v4
