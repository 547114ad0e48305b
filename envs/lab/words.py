"""The words for the names and texts of practice tasks."""

# ruff: noqa: SIM905 - lists of words are easier to read as text

WORDS = """
acorn actor album amber anchor apple apron arrow badge bagel banana banjo barrel basil basket beacon bean berry bishop
blanket blossom boat bottle breeze brick bridge bronze brush bucket butter button cabin cactus camel candle canoe
canyon carpet carrot castle cedar cellar chalk cherry chess circle citrus clay clock cloud clover cobalt cocoa comet
copper coral cotton cradle crane crayon cricket crystal curtain daisy dancer desert diamond dinner doctor dolphin donkey
dragon drum eagle echo elbow ember engine fabric falcon farmer feather fence fiddle field finch flame flute forest
fossil fountain frost garden garlic ginger glacier glove goblet granite grape guitar hammer harbor hazel hedge helmet
honey horizon hotel island ivory jacket jasmine jelly jewel jungle kettle kitchen ladder lagoon lantern lemon lentil
letter lilac linen lizard lobster magnet mango maple marble market meadow melon metal mirror mitten monkey moon mosaic
motor mountain music mustard needle nest nickel noodle nurse ocean olive onion orange orbit orchid otter oven oyster
paddle panda paper parrot pasta peach pearl pebble pencil pepper piano pigeon pillow pilot planet plum pocket pollen
pony potato prairie pumpkin puzzle quartz rabbit radio raven ribbon river robin rocket rose ruby saddle salmon sandal
satin scarf school shadow shell silver singer spider spring squash stable statue stone storm sugar summer sunset table
teapot temple thunder ticket tiger timber tomato topaz tower trumpet tulip tunnel turtle umbrella valley vanilla velvet
village violet violin wagon walnut water whale wheat willow window winter wizard yacht zebra
bat bee cap cup elk fig fox gem gum hat hen ink ivy jam jar kit lab lid map mat net oak oar owl pan paw pea pen pie pin
pot ram rod rug sea sky sun tap tin toy van vet web yak zip
""".split()
"""Words for names and texts."""

ACTIONS = """
bring call check clean close cook draw feed fetch fix help keep lock meet open order pack paint plan read
""".split()
"""Words to use before words of texts."""

ENDINGS = "txt md dat lst out doc cfg csv conf log text tmp list info ini html xml".split()
