// SPDX-License-Identifier: Apache-2.0
#include "terminal.hpp"

#include <algorithm>
#include <poll.h>
#include <unistd.h>

#ifdef VERBENA_NCURSES
#include <clocale>
#include <cstdlib>
#define NCURSES_NOMACROS
#include <ncurses.h>
#include <term.h>
#undef lines // a capability, of which it makes a word of every day
#endif

namespace verbena::cli {

#ifdef VERBENA_NCURSES

namespace {

class ncurses_terminal final : public terminal {
public:
    explicit ncurses_terminal(SCREEN* s) : screen_(s)
    {
        ::cbreak();
        ::noecho();
        ::curs_set(0);
        ::keypad(stdscr, TRUE);
    }
    ~ncurses_terminal() override
    {
        ::endwin();
        ::delscreen(screen_);
    }
    std::size_t width() const override { return static_cast<std::size_t>(std::max(getmaxx(stdscr), 0)); }
    std::size_t height() const override { return static_cast<std::size_t>(std::max(getmaxy(stdscr), 0)); }
    void show(const std::vector<top_line>& lines) override
    {
        ::erase();
        int row = 0;
        for (const top_line& line : lines) {
            if (line.is_head)
                ::attron(A_REVERSE);
            (void)::mvaddnstr(row++, 0, line.text.c_str(), static_cast<int>(line.text.size()));
            if (line.is_head)
                ::attroff(A_REVERSE);
        }
        ::refresh();
    }
    std::optional<top_screen::key> key(std::chrono::milliseconds limit) override
    {
        using k = top_screen::key;
        ::timeout(static_cast<int>(limit.count()));
        switch (::getch()) {
        case 'q':
        case 'Q': return k::quit;
        case 's': return k::sort;
        case 'i': return k::idle;
        case KEY_UP:
        case 'k': return k::up;
        case KEY_DOWN:
        case 'j': return k::down;
        case KEY_PPAGE: return k::page_up;
        case KEY_NPAGE: return k::page_down;
        case KEY_HOME: return k::home;
        case ERR: return is_gone() ? std::optional(k::quit) : std::nullopt;
        default: return {};
        }
    }

private:
    // At once, where a key would be waited for: nobody can press one any more.
    static bool is_gone()
    {
        pollfd in{STDIN_FILENO, 0, 0};
        return ::poll(&in, 1, 0) > 0 && (in.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    }
    SCREEN* const screen_;
};

} // namespace

std::unique_ptr<terminal> terminal::open(std::string& failed)
{
    if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) {
        failed = "this is no terminal; top --once prints one interval without one";
        return nullptr;
    }
    std::setlocale(LC_CTYPE, ""); // of what names may have
    // newterm() would leave memory behind for one that is not known.
    int known = 0;
    SCREEN* s = nullptr;
    if (::setupterm(nullptr, STDOUT_FILENO, &known) == OK) {
        ::del_curterm(cur_term);
        s = ::newterm(nullptr, stdout, stdin);
    }
    if (s == nullptr) {
        const char* const name = std::getenv("TERM");
        failed = std::string("the terminal ") + (name == nullptr ? "(TERM is not set)" : name) +
                 " can't show a screen, or is not known here: set TERM, or use top --once";
        return nullptr;
    }
    ::set_term(s);
    return std::make_unique<ncurses_terminal>(s);
}

#else

std::unique_ptr<terminal> terminal::open(std::string& failed)
{
    failed = "this verbena was built without ncurses: build it with libncurses-dev, or use top --once";
    return nullptr;
}

#endif

} // namespace verbena::cli
