// SPDX-License-Identifier: Apache-2.0
// READDIR and READDIRPLUS. Entries go straight from the back end into the reply.
#include "reply.hpp"

#include <algorithm>
#include <type_traits>

namespace verbena::nfs::v3 {

namespace {

template<class Writer>
class entry_sink;

template<>
class entry_sink<readdir_writer> final : public storage::directory_sink {
public:
    entry_sink(readdir_writer& writer, const handle_key&, const export_options&, const export_table*,
               const covered_directories&) noexcept
        : writer_(writer)
    {
    }
    bool take(const storage::directory_entry& e) override
    {
        return writer_.add({e.fileid, e.name, e.cookie});
    }

private:
    readdir_writer& writer_;
};

template<>
class entry_sink<readdirplus_writer> final : public storage::directory_sink {
public:
    /// `nests`, if there may be any by the names of the directory: what other exports cover is named alone, and LOOKUP
    /// leads into them.
    entry_sink(readdirplus_writer& writer, const handle_key& key, const export_options& exported,
               const export_table* nests, const covered_directories& covered) noexcept
        : writer_(writer), key_(key), exported_(exported), nests_(nests), covered_(covered)
    {
    }
    bool take(const storage::directory_entry& e) override
    {
        entryplus3 entry;
        entry.fileid = e.fileid;
        entry.name = e.name;
        entry.cookie = e.cookie;
        if (nests_ != nullptr && nests_->nested(exported_, e.name) != nullptr)
            return writer_.add(entry);
        if (e.handle && covered_.at(exported_, *e.handle) != nullptr)
            return writer_.add(entry);
        entry.name_attributes = to_post_op(e.attrs);
        if (e.handle) {
            nfs_fh3 wire;
            if (const auto made = sign_handle(key_, exported_.id, *e.handle);
                made && wire.assign(made->bytes()))
                entry.name_handle = wire;
        }
        return writer_.add(entry);
    }

private:
    readdirplus_writer& writer_;
    const handle_key& key_;
    const export_options& exported_;
    const export_table* nests_;
    const covered_directories& covered_;
};

// What stands in front of the resok that `count` and `maxcount` bound, and a failed result.
constexpr std::size_t around_listing = 256;

} // namespace

template<class Writer, class Arguments>
task<rpc::outcome> server::list(rpc::call& c, Arguments args, std::uint32_t size)
{
    constexpr bool plus = std::is_same_v<Writer, readdirplus_writer>;
    directory_head head;
    target directory;
    head.status = open(c, args.dir, purpose::reading, directory);
    if (head.status != nfsstat3::ok)
        co_return reply(c, head);
    c.expect_results(size + around_listing);
    // Taken before the entries: should one be added meanwhile, the client finds its listing out of
    // date rather than a stale one good.
    head.dir_attributes = co_await attributes_of(directory);
    if (!co_await c.reserve_results(size + around_listing)) {
        head.status = nfsstat3::jukebox;
        co_return reply(c, head);
    }
    xdr::encoder& out = c.results();
    const std::size_t start = out.size();
    Writer writer(out, args, head);
    const std::size_t verifier_at = out.size() - verifier_size;
    const bool has_nests = exports_.has_nested(*directory.exported);
    if (plus && has_nests)
        co_await covered_.look(*directory.exported);
    const bool by_name = has_nests && directory.file == directory.backend().root();
    entry_sink<Writer> sink(writer, key_, *directory.exported, by_name ? &exports_ : nullptr, covered_);
    auto done = co_await directory.backend().readdir(directory.request, directory.file, args.cookie,
                                                     from_verifier(args.cookieverf), plus, sink);
    if (!done || !writer.fits() || (writer.entries() == 0 && !done->end)) {
        out.truncate(start);
        head.status = done ? nfsstat3::toosmall : status_of(done.error());
        co_return reply(c, head);
    }
    out.patch_u32(verifier_at, static_cast<std::uint32_t>(done->verifier >> 32));
    out.patch_u32(verifier_at + 4, static_cast<std::uint32_t>(done->verifier));
    writer.finish(done->end);
    co_return out.ok() ? rpc::outcome::success : rpc::outcome::system_error;
}

task<rpc::outcome> server::readdir(rpc::call& c)
{
    READDIR3args args;
    if (!read_arguments(c, args))
        return end_with(rpc::outcome::garbage_args);
    args.count = std::min(args.count, max_listing);
    return list<readdir_writer>(c, args, args.count);
}

task<rpc::outcome> server::readdirplus(rpc::call& c)
{
    READDIRPLUS3args args;
    if (!read_arguments(c, args))
        return end_with(rpc::outcome::garbage_args);
    args.maxcount = std::min(args.maxcount, max_listing);
    return list<readdirplus_writer>(c, args, args.maxcount);
}

} // namespace verbena::nfs::v3
