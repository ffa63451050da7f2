// SPDX-License-Identifier: Apache-2.0
// A client that keeps a ledger of all that a server acknowledged, for tests in which the server's machine dies.
//
//   ledger [--folders N] [--large]     folders that are worked in at once (12); files of up to 4 MiB, and up to 1 MiB a call
//                                      (128 KiB, 40,000 octets)
//
// Commands come by lines of the standard input, answers go to the standard output:
//   load URL     makes new folders and works in them: `loading`, and at last the answer of `dead`
//   dead         the server is gone, or shall be taken for it: `acknowledged N`, the operations of this load
//   check URL    compares the folders of the last load with what was acknowledged: `good`, or `lost` behind lines with
//                what is otherwise
//   check-all URL   the same for all folders
//   counts       acknowledged operations by kind, as one line
// What cannot be done is answered by `error TEXT`. The end of the input ends it.
#include "client/session.hpp"
#include "commands.hpp"
#include "folder.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

using namespace verbena;
using namespace verbena::ledger;

namespace {

constexpr std::size_t max_shown = 8;

class book {
public:
    book(cli::runtime& r, unsigned folders, const sizes& s) : runtime_(r), per_load_(folders), sizes_(s) {}

    task<void> serve()
    {
        for (;;) {
            const std::string line = co_await commands_.next();
            const std::size_t space = line.find(' ');
            const std::string word = line.substr(0, space);
            const std::string url = space == std::string::npos ? std::string() : line.substr(space + 1);
            if (word == "end")
                co_return;
            if (word == "load")
                co_await load(url);
            else if (word == "check" || word == "check-all")
                co_await check(url, word == "check" ? std::min<std::size_t>(per_load_, folders_.size())
                                                    : folders_.size());
            else if (word == "counts")
                answer(counts());
            else
                answer("error no command " + word);
        }
    }

private:
    task<std::unique_ptr<cli::session>> connect(std::string url)
    {
        auto where = cli::parse_url(url);
        if (!where) {
            answer("error " + where.error().message());
            co_return nullptr;
        }
        auto s = std::make_unique<cli::session>(runtime_, *where);
        const cli::failure failed = co_await s->mount();
        if (failed.failed()) {
            co_await s->close();
            answer("error " + failed.what());
            co_return nullptr;
        }
        co_return s;
    }

    task<void> load(std::string url)
    {
        auto s = co_await connect(url);
        if (!s)
            co_return;
        const std::size_t first = folders_.size();
        for (unsigned i = 0; i < per_load_; ++i) {
            folders_.emplace_back("folder-" + std::to_string(folders_.size()), folders_.size(), sizes_);
            auto made = co_await folders_.back().make(s->nfs3(), s->mounted().root);
            if (!made) {
                answer("error MKDIR: " + made.error().message());
                co_await s->close();
                co_return;
            }
        }
        bool stop = false;
        const counters before = counters_;
        std::string command;
        {
            scope workers(runtime_.shard());
            for (std::size_t i = first; i < folders_.size(); ++i)
                workers.spawn([&] { return folders_[i].work(s->nfs3(), stop, counters_); });
            answer("loading");
            command = co_await commands_.next();
            stop = true;
            co_await s->close();
            co_await workers.join();
        }
        for (std::size_t i = first; i < folders_.size(); ++i) {
            if (!folders_[i].failure().empty()) {
                answer("error " + folders_[i].failure());
                co_return;
            }
        }
        answer(command == "dead" ? "acknowledged " + std::to_string(sum(counters_) - sum(before))
                                 : "error \"dead\" ends a load, not \"" + command + '"');
    }

    task<void> check(std::string url, std::size_t last)
    {
        auto s = co_await connect(url);
        if (!s)
            co_return;
        std::vector<std::string> differences;
        for (std::size_t i = folders_.size() - last; i < folders_.size(); ++i)
            co_await folders_[i].check(s->nfs3(), s->mounted().root, differences);
        co_await s->close();
        for (std::size_t i = 0; i < std::min(differences.size(), max_shown); ++i)
            answer("  " + differences[i]);
        answer(differences.empty() ? "good" : "lost " + std::to_string(differences.size()));
    }

    static std::uint64_t sum(const counters& c)
    {
        return std::accumulate(c.begin(), c.end(), std::uint64_t(0));
    }
    std::string counts() const
    {
        std::string text = "counts";
        for (std::size_t i = 0; i < kinds; ++i)
            text +=
                (i == 0 ? " " : ", ") + std::to_string(counters_[i]) + ' ' + to_string(static_cast<kind>(i));
        return text;
    }

    cli::runtime& runtime_;
    const std::size_t per_load_;
    const sizes sizes_;
    commands commands_;
    std::deque<folder> folders_;
    counters counters_{};
};

} // namespace

int main(int argc, char** argv)
{
    unsigned folders = 12;
    sizes s;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--folders" && i + 1 < argc)
            folders = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
        else if (word == "--large")
            s = {std::size_t(4) << 20, std::size_t(1) << 20};
        else
            return std::fprintf(stderr, "ledger: usage: ledger [--folders N] [--large]\n"), 2;
    }
    if (::geteuid() != 0)
        return std::fprintf(stderr, "ledger: only root may make devices and change owners; run it as root\n"),
               2;
    auto shard = reactor::create();
    if (!shard)
        return std::fprintf(stderr, "ledger: %s\n", shard.error().message().c_str()), 1;
    cli::global_options options;
    options.timeout_seconds = 30;
    cli::runtime r(std::move(*shard), options);
    book b(r, folders, s);
    run_until_complete(r.shard(), b.serve());
    return 0;
}
