"""What root does on a machine of its own: a command for each chore, and the end of what it prints.

Each begins in an empty folder of its own, and leaves what a second run of it finds."""

_BUILD = r"""
mkdir -p p/DEBIAN p/usr/share/thing debs
printf 'Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: us\nDescription: a thing\n' >p/DEBIAN/control
printf '#!/bin/sh\nid thing >/dev/null || useradd --system thing\n' >p/DEBIAN/postinst
echo 'chown thing:games /usr/share/thing' >>p/DEBIAN/postinst
chmod 755 p/DEBIAN/postinst && dpkg-deb --build p debs/thing.deb >/dev/null
"""
_LISTEN = "import socket; print(socket.create_server(('127.0.0.1', 80)).getsockname()[1])"
_REPOSITORY = r"""
cd debs && { dpkg-deb -f thing.deb; printf 'Filename: ./thing.deb\nSize: %s\n' "$(stat -c %s thing.deb)"
printf 'SHA256: %s\n' "$(sha256sum thing.deb | cut -d ' ' -f 1)"; } >Packages && cd ..
echo "deb [trusted=yes] file:$PWD/debs ./" >sources && chmod -R a+rX .
alone="-qq -o Dir::Etc::SourceList=$PWD/sources -o Dir::Etc::SourceParts=-"
apt-get $alone update && apt-get $alone install thing >log 2>&1
dpkg-query -W -f '${Version} ${Status}\n' thing
"""
_SERVICE = r"""
cat >/etc/init.d/napper <<'EOF'
#!/bin/sh
run="start-stop-daemon --pidfile /run/napper.pid"
case $1 in
    start) $run --start --background --make-pidfile --chuid games --exec /bin/sleep -- 4334 ;;
    stop) $run --stop --retry 5 ;;
    status) $run --status ;;
esac
EOF
chmod 755 /etc/init.d/napper && service napper start && sleep 0.3
ps -o user= -p "$(cat /run/napper.pid)"; service napper stop >/dev/null; service napper status || echo "stopped"
"""
_SERVE = r"""
import os, socket, threading
with socket.create_server(("127.0.0.1", 81)) as listener:
    os.setgroups([]); os.setgid(60); os.setuid(5)
    threading.Thread(target=lambda: listener.accept()[0].sendall(str(os.getuid()).encode())).start()
    print(socket.create_connection(("127.0.0.1", 81)).recv(9).decode())
"""

CHORES = {
    "add a user": (
        "id alice >/dev/null 2>&1 || useradd --create-home alice; su alice -c 'touch ~/mine && stat -c %U ~/mine'",
        "alice\n",
    ),
    "give a file away": ("touch a; chown games:mail a && stat -c %U:%G a", "games:mail\n"),
    "append to a file that nobody may write": ("echo 1 >b; chmod 444 b; echo 2 >>b && cat b", "1\n2\n"),
    "write to another's folder": ("mkdir d; chown games d; chmod 700 d; echo 3 >d/c && cat d/c", "3\n"),
    "unpack another's archive": ("echo 4 >e; chown 7:8 e; tar cf x e; rm e; tar xf x && stat -c %u:%g e", "7:8\n"),
    "install a package from a folder": (
        f"{_BUILD} apt-get -qq install ./debs/thing.deb >log 2>&1; stat -c %U:%G /usr/share/thing",
        "thing:games\n",
    ),
    "install a package from a repository": (_BUILD + _REPOSITORY, "1 install ok installed\n"),
    "remove a package": (
        f"{_BUILD} dpkg -i debs/thing.deb >log && dpkg -P thing >>log && ls -d /usr/share/thing 2>&1 | wc -w; "
        "dpkg -s thing 2>&1 | head -n 1",
        "package 'thing' is not installed and no information is available\n",
    ),
    "choose among programs": (
        "ln -sf /bin/true old; ln -sf /bin/echo new; for n in old new; do "
        'update-alternatives --quiet --install /usr/local/bin/chosen chosen "$PWD/$n" $(ls -l $n | wc -c); done; '
        'update-alternatives --quiet --set chosen "$PWD/new"; chosen here',
        "here\n",
    ),
    "start and stop a service": (_SERVICE, "games\nstopped\n"),
    "end another user's process": (
        "su games -s /bin/sh -c 'exec sleep 4331' & sleep 0.3; pkill -u games; wait; pgrep -u games | wc -l",
        "0\n",
    ),
    "limit another user's command": (
        "timeout 1 su games -s /bin/sh -c 'exec sleep 4331' >/dev/null 2>&1; echo $?",
        "124\n",
    ),
    "listen on a port of root's": (f'python3 -c "{_LISTEN}"', "80\n"),
    "serve a port of root's as another user": (f"python3 -c '{_SERVE}'", "5\n"),
    "name an address": (
        "echo 127.0.0.9 database >>/etc/hosts; getent hosts database | head -n 1 | tr -s ' '",
        "127.0.0.9 database\n",
    ),
    "run in another root directory": (
        "mkdir -p r/in; python3 -c \"import os; os.chroot('r'); print(*os.listdir('/'))\"",
        "in\n",
    ),
    "become another user for good": ("setpriv --reuid=games --clear-groups --bounding-set=-all id -un", "games\n"),
    "share a folder with a group": (
        "getent group crew >/dev/null || { groupadd crew; useradd -G crew bob; }; chmod 755 .; mkdir -m 2775 s; "
        "chgrp crew s; su bob -c 'touch s/x' && stat -c %U:%G s/x",
        "bob:crew\n",
    ),
    "set a password": ("echo games:secret | chpasswd && grep -c '^games:[$]' /etc/shadow", "1\n"),
    "remove and date what others have in a shared folder": (
        "mkdir -m 1777 t; chmod 755 .; su games -s /bin/sh -c 'touch t/a t/b; chmod 600 t/*'; "
        "touch -d @86400 t/a && ln t/a c && rm t/b && stat -c '%U %h %Y' c; ls t",
        "games 2 86400\na\n",
    ),
}
