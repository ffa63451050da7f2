// SPDX-License-Identifier: Apache-2.0
// What changes files on a server: rm, mkdir, mv, cp.
#include "commands.hpp"
#include "json_text.hpp"
#include "session.hpp"
#include "store.hpp"

#include "../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <unistd.h>

namespace verbena::cli {
namespace {

// "/a/b/c" is "c" in "/a/b".
struct split_path {
    explicit split_path(std::string_view path)
    {
        while (path.ends_with('/'))
            path.remove_suffix(1);
        const std::size_t slash = path.rfind('/');
        name = path.substr(slash == std::string_view::npos ? 0 : slash + 1);
        parent = path.substr(0, slash == std::string_view::npos ? 0 : slash);
    }
    std::string parent;
    std::string name;
};

const error is_root(std::errc::device_or_resource_busy, "that is the export itself");
const error
    is_dots(std::errc::invalid_argument,
            "'.' and '..' are no names of their own: write the directory's name, as its parent lists it");

// They lead elsewhere than the words before them say: "a/.." is not in "a".
bool is_dots_name(std::string_view name) noexcept { return name == "." || name == ".."; }

// One run of rm over one URL. What fails below the URL is told by its name, and the rest goes on.
class remover {
public:
    remover(session& s, bool recursive) : session_(s), recursive_(recursive) {}
    /// False if something below was left, and told.
    task<result<bool>> run()
    {
        const split_path path(session_.rest());
        if (path.name.empty())
            co_return is_root;
        if (is_dots_name(path.name))
            co_return is_dots;
        auto directory = co_await session_.walk(path.parent);
        if (!directory)
            co_return directory.error();
        auto found = co_await session_.nfs().lookup(directory->handle, path.name);
        if (!found)
            co_return found.error();
        // An empty one goes so, and a snapshot, whose files can't be removed one by one.
        if (recursive_ && found->attributes.type == file_type::dir) {
            const auto at_once = co_await session_.nfs().rmdir(directory->handle, path.name);
            if (at_once)
                co_return true;
            // Any other failure says nothing of what is in it, or that it is gone: of a snapshot all would be.
            if (at_once.error() != std::errc::directory_not_empty &&
                at_once.error() != std::errc::file_exists)
                co_return at_once.error();
        }
        above_.push_back(directory->handle);
        co_return co_await remove(directory->handle, path.name, *found, session_.where().path);
    }

private:
    task<result<bool>> remove(handle directory, std::string name, node n, std::string path);
    task<result<bool>> empty(handle directory, std::string path);
    task<result<bool>> remove_found(handle directory, const directory_entry& e, std::string path);

    session& session_;
    bool recursive_;
    std::vector<handle> above_; // the directories that are being emptied, and where the first one lies
    std::size_t held_ = 0;      // octets of their entries
};

task<result<bool>> remover::remove(handle directory, std::string name, node n, std::string path)
{
    if (n.attributes.type != file_type::dir) {
        auto removed = co_await session_.nfs().remove(directory, name);
        if (!removed)
            co_return removed.error();
        co_return true;
    }
    if (!recursive_)
        co_return error(std::errc::is_a_directory, "use -r to remove directories");
    if (std::ranges::find(above_, n.handle) != above_.end())
        co_return error(std::errc::too_many_symbolic_link_levels, "a directory that lies in itself");
    if (path.size() > max_tree_path)
        co_return error(std::errc::filename_too_long, "too long a path to go into");
    above_.push_back(n.handle);
    auto emptied = co_await empty(n.handle, std::move(path));
    above_.pop_back();
    if (!emptied || !*emptied)
        co_return emptied;
    auto removed = co_await session_.nfs().rmdir(directory, name);
    if (!removed)
        co_return removed.error();
    co_return true;
}

task<result<bool>> remover::remove_found(handle directory, const directory_entry& e, std::string path)
{
    if (!nfs::is_name(e.name))
        co_return error(std::errc::protocol_error, "the server tells of an entry with a name that is none");
    node n;
    if (e.found) {
        n = *e.found;
    } else {
        auto found = co_await session_.nfs().lookup(directory, e.name);
        if (!found)
            co_return found.error();
        n = *found;
    }
    co_return co_await remove(directory, e.name, n, std::move(path));
}

// False if something is left in it, and told.
task<result<bool>> remover::empty(handle directory, std::string path)
{
    auto entries = co_await session_.nfs().list(directory, true, listing_bytes - held_);
    if (!entries)
        co_return entries.error();
    std::size_t held = 0;
    for (const directory_entry& e : *entries)
        held += sizeof e + e.name.size();
    held_ += held;
    bool all = true;
    for (const directory_entry& e : *entries) {
        auto gone = co_await remove_found(directory, e, path + "/" + e.name);
        if (!gone && gone.error() == std::errc::no_such_file_or_directory)
            continue; // by somebody else
        if (!gone && ends_all(gone.error()))
            co_return gone.error();
        if (!gone)
            say(printable(path + "/" + e.name) + ": " + refusal(gone.error()));
        all = all && gone && *gone;
    }
    held_ -= held;
    co_return all;
}

task<result<void>> make_path(session& s, const mkdir_options& o)
{
    const split_path path(s.rest());
    if (path.name.empty()) {
        if (o.parents)
            co_return result<void>();
        co_return is_root;
    }
    new_attributes attributes;
    attributes.mode = o.mode;
    if (!o.parents) {
        if (is_dots_name(path.name))
            co_return is_dots;
        auto directory = co_await s.walk(path.parent);
        if (!directory)
            co_return directory.error();
        auto may = co_await s.may_make_in(directory->handle);
        if (!may)
            co_return may.error();
        auto made = co_await s.nfs().mkdir(directory->handle, path.name, attributes);
        if (!made)
            co_return made.error();
        co_return result<void>();
    }
    handle here = s.root();
    std::string_view rest = s.rest();
    while (rest.find_first_not_of('/') != std::string_view::npos) {
        rest.remove_prefix(rest.find_first_not_of('/'));
        const std::string name(rest.substr(0, rest.find('/')));
        rest.remove_prefix(name.size());
        auto next = co_await s.nfs().walk(here, name, true);
        if (!next && next.error() == std::errc::no_such_file_or_directory) {
            auto may = co_await s.may_make_in(here);
            if (!may)
                co_return may.error();
            next = co_await s.nfs().mkdir(here, name, attributes);
        }
        if (!next)
            co_return next.error();
        if (next->attributes.type != file_type::dir)
            co_return error(std::errc::not_a_directory, "MKDIR");
        here = next->handle;
    }
    co_return result<void>();
}

// A place of cp: a local path, or a session with a store on it.
class place {
public:
    place(runtime& r, std::string text) : runtime_(r), text_(std::move(text)) {}

    /// Exit code, told already if it isn't exit_ok.
    task<int> open()
    {
        if (!is_url(text_)) {
            store_ = make_local_store(runtime_, text_);
            co_return exit_ok;
        }
        auto where = url_argument(text_);
        if (!where || has_no_layouts(runtime_, *where))
            co_return exit_usage;
        session_ = std::make_unique<session>(runtime_, *where);
        const failure failed = co_await session_->mount();
        if (failed.failed())
            co_return complain(failed.text(), exit_unreachable);
        store_ = make_remote_store(*session_, session_->rest());
        co_return exit_ok;
    }
    task<void> close()
    {
        if (session_)
            co_await session_->close();
    }
    bool is_open() const noexcept { return store_ != nullptr; }
    bool is_on_server() const noexcept { return session_ != nullptr; }
    const std::string& text() const noexcept { return text_; }
    nfs::v4::pnfs::layout_user* layouts() noexcept { return session_ ? session_->layouts() : nullptr; }
    store& files() noexcept { return *store_; }
    /// The last part of the path: what a copy in a directory is called.
    std::string leaf() const
    {
        std::string name =
            split_path(session_ ? std::string_view(session_->where().path) : std::string_view(text_)).name;
        return is_dots_name(name) ? std::string() : name; // then the directory's entries, as `cp` has it
    }

private:
    runtime& runtime_;
    std::string text_;
    std::unique_ptr<session> session_;
    std::unique_ptr<store> store_;
};

task<void> show_progress(const copier& c)
{
    const auto begin = std::chrono::steady_clock::now();
    constexpr int width = 24;
    while (co_await sleep_for(std::chrono::milliseconds(100))) {
        const copy_totals& t = c.totals();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        const auto rate =
            static_cast<std::uint64_t>(static_cast<double>(t.bytes) / std::max(took.count(), 1e-3));
        // Of a tree that is still walked nobody knows how much it holds.
        std::string done = "counting";
        if (!t.counting) {
            const double part = t.expected_bytes == 0
                                    ? 0
                                    : static_cast<double>(t.bytes) / static_cast<double>(t.expected_bytes);
            done.assign(static_cast<std::size_t>(std::min(part, 1.0) * width), '#');
            done.resize(width, '.');
            char percent[8];
            std::snprintf(percent, sizeof percent, "%3.0f%%", std::min(part, 1.0) * 100);
            done = "[" + done + "] " + percent;
        }
        std::fprintf(stderr, "\r\033[K%s  %s of %s  %llu of %llu files%s  %s/s", done.c_str(),
                     human(t.bytes).c_str(), human(t.expected_bytes).c_str(),
                     static_cast<unsigned long long>(t.files),
                     static_cast<unsigned long long>(t.expected_files), t.counting ? " so far" : "",
                     human(rate).c_str());
    }
    std::fprintf(stderr, "\r\033[K");
}

// By which ways bytes of files have gone, and why some did not go by RDMA.
struct ways_of_bytes {
    std::uint64_t by_rdma = 0;
    std::uint64_t by_nfs = 0;
    std::array<std::uint64_t, nfs::v4::pnfs::reasons_by_nfs> because{};

    void add(nfs::v4::pnfs::layout_user* layouts)
    {
        if (layouts == nullptr)
            return;
        const auto& c = layouts->counts();
        by_rdma += c.read_by_rdma + c.written_by_rdma;
        by_nfs += c.read_by_nfs + c.written_by_nfs;
        for (std::size_t i = 0; i < because.size(); ++i)
            because[i] += c.by_reason[i];
    }
    /// Whether a server has layouts, and some byte could have gone by one.
    bool has_layouts() const
    {
        using nfs::v4::pnfs::by_nfs;
        if (by_rdma != 0)
            return true;
        for (std::size_t i = 0; i < because.size(); ++i) {
            const auto why = static_cast<by_nfs>(i);
            if (because[i] != 0 && why != by_nfs::no_server && why != by_nfs::no_type &&
                why != by_nfs::small && why != by_nfs::behind_end)
                return true;
        }
        return false;
    }
    const char* most_frequent() const
    {
        const auto most = std::ranges::max_element(because);
        return nfs::v4::pnfs::to_string(static_cast<nfs::v4::pnfs::by_nfs>(most - because.begin()));
    }
};

task<int> copy_all(runtime& r, const cp_options& o, std::vector<std::unique_ptr<place>>& sources,
                   place& target)
{
    // One that can't be reached keeps nobody from copying the others.
    int worst = exit_ok;
    std::size_t opened = 0;
    for (auto& source : sources) {
        const int code = co_await source->open();
        if (code == exit_usage)
            co_return code;
        worst = std::max(worst, code);
        if (code == exit_ok)
            ++opened;
    }
    if (opened == 0)
        co_return worst;
    if (const int code = co_await target.open(); code != exit_ok)
        co_return code;
    auto there = co_await target.files().stat("", true);
    if (!there && there.error() != std::errc::no_such_file_or_directory)
        co_return complain(o.target + ": " + there.error().message(), exit_failed);
    const bool into = there && there->kind == file_kind::directory;
    if (sources.size() > 1 && !into)
        co_return complain(o.target + ": several sources need a directory that exists as target", exit_usage);
    const bool requires_layouts = r.options().layouts == layout_use::require;
    for (const auto& source : sources) {
        if (requires_layouts && source->is_open() && !source->is_on_server() && !target.is_on_server())
            co_return complain(source->text() + " to " + o.target +
                                   ": neither is on a server: leave out --layout require",
                               exit_usage);
    }
    copy_options how = o.copy;
    how.quiet = r.options().json;
    copier c(r, how);
    const auto begin = std::chrono::steady_clock::now();
    scope progress(r.shard());
    if (::isatty(STDERR_FILENO) && !r.options().quiet)
        progress.spawn([&] { return show_progress(c); });
    for (auto& source : sources) {
        if (!source->is_open()) {
            c.count_failure();
            continue;
        }
        std::string to = into ? source->leaf() : std::string();
        task<void> copying = c.copy(source->files(), std::string(), target.files(), std::move(to));
        co_await copying;
    }
    progress.request_stop();
    co_await progress.join();
    const copy_totals& t = c.totals();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    bool uses_layouts = target.layouts() != nullptr;
    ways_of_bytes ways;
    for (auto& source : sources) {
        ways.add(source->layouts());
        uses_layouts = uses_layouts || source->layouts() != nullptr;
    }
    ways.add(target.layouts());
    if (r.options().json) {
        nlohmann::json out = {{"files", t.files}, {"directories", t.directories}, {"links", t.links},
                              {"bytes", t.bytes}, {"failures", t.failures},       {"seconds", took.count()}};
        if (uses_layouts) {
            out["bytes_by_rdma"] = ways.by_rdma;
            out["bytes_by_nfs"] = ways.by_nfs;
            nlohmann::json& why = out["by_nfs_because"] = nlohmann::json::object();
            for (std::size_t i = 0; i < ways.because.size(); ++i) {
                if (ways.because[i] != 0)
                    why[nfs::v4::pnfs::name_of(static_cast<nfs::v4::pnfs::by_nfs>(i))] = ways.because[i];
            }
        }
        if (o.copy.checksum) {
            nlohmann::json& all = out["checksums"] = nlohmann::json::array();
            for (const copier::file_checksum& one : c.checksums()) {
                nlohmann::json item = {{"sha256", one.sha256}};
                put_text(item, "path", one.path);
                all.push_back(std::move(item));
            }
        }
        print("%s\n", dump(out).c_str());
    } else if (!r.options().quiet) {
        std::string by;
        if (requires_layouts || ways.has_layouts())
            by = "; " + human(ways.by_rdma) + " by RDMA, " + human(ways.by_nfs) + " by NFS" +
                 (ways.by_nfs != 0 ? std::string(" (") + ways.most_frequent() + ")" : std::string());
        std::fprintf(
            stderr, "%s, %s in %.2f s, %s/s%s\n", counted(t.files, "file").c_str(), human(t.bytes).c_str(),
            took.count(),
            human(static_cast<std::uint64_t>(static_cast<double>(t.bytes) / std::max(took.count(), 1e-6)))
                .c_str(),
            by.c_str());
    }
    co_return t.failures == 0 ? exit_ok : std::max<int>(worst, exit_failed);
}

} // namespace

task<int> rm(runtime& r, rm_options o)
{
    int code = exit_ok;
    for (const std::string& text : o.urls) {
        auto where = url_argument(text);
        if (!where)
            co_return exit_usage;
        session s(r, *where);
        const failure failed = co_await s.mount();
        if (failed.failed()) {
            code = complain(failed.text(), exit_unreachable);
        } else {
            remover all(s, o.recursive);
            auto removed = co_await all.run();
            if (removed && !*removed)
                code = std::max<int>(code, exit_failed);
            if (!removed && !(o.force && removed.error() == std::errc::no_such_file_or_directory))
                code = std::max(code, complain(text + ": " + refusal(removed.error()), exit_failed));
        }
        co_await s.close();
    }
    co_return code;
}

task<int> mkdir(runtime& r, mkdir_options o)
{
    int code = exit_ok;
    for (const std::string& text : o.urls) {
        auto where = url_argument(text);
        if (!where)
            co_return exit_usage;
        session s(r, *where);
        const failure failed = co_await s.mount();
        if (failed.failed()) {
            code = complain(failed.text(), exit_unreachable);
        } else {
            auto made = co_await make_path(s, o);
            if (!made)
                code = std::max(code, complain(text + ": " + refusal(made.error()), exit_failed));
        }
        co_await s.close();
    }
    co_return code;
}

task<int> mv(runtime& r, std::string from, std::string to)
{
    auto source = url_argument(from);
    auto target = url_argument(to);
    if (!source || !target)
        co_return exit_usage;
    const std::string across = "mv renames within one server, transport and version of NFS: use cp, then rm";
    if (source->host != target->host || source->port != target->port ||
        source->transport != target->transport)
        co_return complain(across, exit_usage);
    session a(r, *source);
    session b(r, *target);
    failure failed = co_await a.mount();
    if (!failed.failed())
        failed = co_await b.mount();
    int code = exit_ok;
    if (failed.failed()) {
        code = complain(failed.text(), exit_unreachable);
    } else if (a.version() != b.version()) {
        code = complain(across, exit_usage);
    } else {
        const split_path old_path(a.rest());
        split_path new_path(b.rest());
        auto old_directory = co_await a.walk(old_path.parent);
        auto new_directory = co_await b.walk(b.rest());
        result<void> moved;
        if (old_path.name.empty())
            moved = is_root;
        else if (is_dots_name(old_path.name))
            moved = is_dots;
        else if (!old_directory)
            moved = old_directory.error();
        else if (new_directory && new_directory->attributes.type == file_type::dir)
            new_path.name = old_path.name; // into the directory
        else if (!new_directory && new_directory.error() != std::errc::no_such_file_or_directory)
            moved = new_directory.error(); // nobody knows whether it is one
        else if (is_dots_name(new_path.name))
            moved = is_dots; // of something that is no directory
        else
            new_directory = co_await b.walk(new_path.parent);
        if (moved && !new_directory)
            moved = new_directory.error();
        if (moved)
            moved = co_await b.may_make_in(new_directory->handle);
        if (moved)
            moved = co_await a.nfs().rename(old_directory->handle, old_path.name, new_directory->handle,
                                            new_path.name);
        if (!moved) {
            const char* cure = moved.error() == std::errc::cross_device_link ? "; use cp, then rm" : "";
            code = complain(from + ": " + refusal(moved.error()) + cure, exit_failed);
        }
    }
    co_await a.close();
    co_await b.close();
    co_return code;
}

task<int> cp(runtime& r, cp_options o)
{
    std::vector<std::unique_ptr<place>> sources;
    for (const std::string& text : o.sources)
        sources.push_back(std::make_unique<place>(r, text));
    place target(r, o.target);
    const int code = co_await copy_all(r, o, sources, target);
    for (auto& source : sources)
        co_await source->close();
    co_await target.close();
    co_return code;
}

} // namespace verbena::cli
